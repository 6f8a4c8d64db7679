-- How long were jobs ready before a take, and taken before their ack, in each tube and minute, counted in buckets?
--
-- Buckets, unlike percentiles, can be added. See summary.sql for their limits.
SELECT date, tube, minute, IF(kind = 'take', 'wait', 'run') AS kind, bucket, sum(count) AS count
FROM summary
WHERE bucket IS NOT NULL
GROUP BY ALL
