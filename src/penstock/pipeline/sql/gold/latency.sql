-- What are the median, the 95th and the 99th percentile of wait and run times, in ms, in each tube and minute?
--
-- Computed from durations: the end of the bucket that contains the percentile.
WITH ranked AS (
  SELECT
    *,
    sum(count) OVER (PARTITION BY date, tube, minute, kind ORDER BY bucket) AS upto,
    sum(count) OVER (PARTITION BY date, tube, minute, kind) AS total,
    IF(bucket = 0, 0D, round(pow(1.02D, bucket - 1), 1)) AS ms
  FROM durations
)
SELECT
  date, tube, minute,
  coalesce(sum(count) FILTER (WHERE kind = 'wait'), 0) AS waits,
  min(ms) FILTER (WHERE kind = 'wait' AND upto >= total * 0.50) AS wait_p50,
  min(ms) FILTER (WHERE kind = 'wait' AND upto >= total * 0.95) AS wait_p95,
  min(ms) FILTER (WHERE kind = 'wait' AND upto >= total * 0.99) AS wait_p99,
  coalesce(sum(count) FILTER (WHERE kind = 'run'), 0) AS runs,
  min(ms) FILTER (WHERE kind = 'run' AND upto >= total * 0.50) AS run_p50,
  min(ms) FILTER (WHERE kind = 'run' AND upto >= total * 0.95) AS run_p95,
  min(ms) FILTER (WHERE kind = 'run' AND upto >= total * 0.99) AS run_p99
FROM ranked
GROUP BY date, tube, minute
