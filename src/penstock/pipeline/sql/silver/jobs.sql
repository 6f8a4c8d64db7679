-- When was each job put, taken and finished, how long did it wait and run, and how did it end?
--
-- Every column is a minimum, a maximum, or the value at the newest position. A row of the previous turn can therefore
-- stand for all earlier events of its job. Jobs whose column ended is null are unfinished.
WITH summed AS (
  SELECT
    node,
    job,
    max_by(struct(tube, key, after, reason, deliveries, nacks, returns, event, carried), position) AS last,
    max_by(struct(outcome, finished_at,
                  IF(carried, run_ms, IF(before = 'taken', unix_millis(time) - unix_millis(since), NULL)) AS run_ms),
           position) FILTER (WHERE outcome IS NOT NULL) AS decided,
    min(put_at) AS put_at,
    min(coalesce(ready_at, ready_from)) AS ready_at,
    min(coalesce(first_take_at, held_from)) AS first_take_at,
    max(held_from) AS last_take_at,
    max(wait_ms) AS wait_ms,
    bool_or(once) AS once,
    nullif(max_by(taker, position) FILTER (WHERE taker IS NOT NULL), 0) AS session,
    max_by(body_bytes, position) FILTER (WHERE body_bytes IS NOT NULL) AS body_bytes,
    bool_or(whole) AS whole,
    max(ready_from) AS ready_since,
    max(position) AS position,
    max(coalesce(time, finished_at)) AS newest
  FROM steps
  GROUP BY node, job
)
SELECT
  node, job, last.tube, last.key, last.after AS state, decided.outcome, last.reason, put_at, ready_at, first_take_at,
  last_take_at,
  IF(decided.outcome IN ('open', 'copy'), NULL, decided.finished_at) AS finished_at,
  IF(whole, coalesce(wait_ms, unix_millis(first_take_at) - unix_millis(ready_at)), NULL) AS wait_ms,
  IF(decided.outcome IN ('open', 'copy'), NULL, decided.run_ms) AS run_ms,
  last.deliveries, last.nacks, last.returns, once, session, body_bytes, whole, ready_since, last.event, position,
  -- A job that moves to another tube arrives there with the next event. If it has not arrived by the next turn, it is in
  -- a temporary tube, which is not in the log.
  IF(last.after = 'gone' AND (last.event <> 'moved out' OR last.carried), to_date(newest), NULL) AS ended
FROM summed
