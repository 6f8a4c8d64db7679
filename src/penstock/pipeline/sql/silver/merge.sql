-- When was each job put, taken and finished, how long did it wait and run, and how did it end?
--
-- Merges the parts of each job.
SELECT
  node, job, last.tube, last.key, last.state, decided.outcome, last.reason, put_at, ready_at,
  first_take.first_take_at, last_take.last_take_at, decided.finished_at, first_take.wait_ms, decided.run_ms,
  last.deliveries, last.nacks, last.returns, once, last_take.session, body_bytes, whole, last.event, last.position,
  decided.outcome_position, last.date
FROM (
  SELECT
    node, job,
    max(struct(position, tube, key, state, reason, deliveries, nacks, returns, event, date)) AS last,
    max(IF(outcome IS NULL, NULL, struct(outcome_position, outcome, finished_at, run_ms))) AS decided,
    min(put_at) AS put_at,
    min(ready_at) AS ready_at,
    min(IF(first_take_at IS NULL, NULL, struct(first_take_at, position, wait_ms))) AS first_take,
    max(IF(last_take_at IS NULL, NULL, struct(last_take_at, position, session))) AS last_take,
    max(once) AS once,
    max(body_bytes) AS body_bytes,
    max(whole) AS whole
  FROM {parts}
  GROUP BY node, job
)
