-- How long were jobs ready before a take, and taken before their ack, in each tube and minute, counted in buckets?
--
-- Bucket 0 is 0 ms. Bucket n ends at 1.02 to the power of n - 1 ms, so percentiles computed from buckets are accurate to
-- 2 %. Buckets, unlike percentiles, can be added.
SELECT date, tube, minute, kind, IF(ms <= 0, 0, CAST(ceil(ln(ms) / ln(1.02)) AS INT) + 1) AS bucket, count(*) AS count
FROM (
  SELECT
    date, tube, minute,
    IF(kind = 'take', 'wait', 'run') AS kind,
    unix_millis(time) - unix_millis(since) AS ms
  FROM steps
  WHERE kind = 'take' OR kind = 'ack' AND before = 'taken'
)
WHERE ms IS NOT NULL
GROUP BY ALL
