-- How often did each kind of event occur in each tube and minute, and how long had its jobs waited or run?
--
-- The other gold queries, except those about keys, workers and peaks, read this small result instead of all events.
SELECT
  date, tube, minute, event, before, after, aside, was_aside, first, kind, given_up, cause,
  kind = 'take' AND deliveries > 1 AS again,
  -- Bucket 0 is 0 ms. Bucket n ends at 1.02 to the power of n - 1 ms, so percentiles from buckets are accurate to 2 %.
  IF(kind = 'take' OR kind = 'ack' AND before = 'taken',
     IF(ms <= 0, 0, CAST(ceil(ln(ms) / ln(1.02)) AS INT) + 1), NULL) AS bucket,
  count(*) AS count,
  max(job) AS example
FROM steps
GROUP BY ALL
