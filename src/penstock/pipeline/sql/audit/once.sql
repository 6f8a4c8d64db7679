-- Was any job with at-most-once delivery delivered more than once?
SELECT node, tube, job, position, time, concat('delivery ', nth, ' of a job that may be delivered once') AS what
FROM (
  SELECT
    *,
    -- A delivery that did not reach its consumer does not count.
    sum(CASE WHEN event IN ('taken', 'claimed') THEN 1 WHEN event = 'undelivered' THEN -1 ELSE 0 END)
      OVER (PARTITION BY node, job ORDER BY position) AS nth
  FROM holds
  WHERE once
)
WHERE nth > 1 AND event IN ('taken', 'claimed')
