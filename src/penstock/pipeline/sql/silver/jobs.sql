-- What happened to each job on each day in this turn?
--
-- Each row is a part of a job. Every column is a minimum, a maximum, or the value at the newest position, so parts can be
-- merged in any order: see merge.sql.
WITH news AS (
  SELECT
    *,
    flags & 16 <> 0 AS was_aside,
    CASE
      WHEN flags & 8 <> 0 THEN 'copy'
      WHEN flags & 16 <> 0 AND after = 'gone' THEN NULL
      -- A job that was acked or buried keeps this outcome if it is removed later.
      WHEN before IN ('done', 'zombie', 'buried') AND after = 'gone' AND event NOT IN ('acked', 'moved out') THEN NULL
      WHEN event IN ('expired', 'deleted', 'truncated', 'withdrawn') THEN event
      WHEN event = 'discarded' THEN 'dropped'
      WHEN event = 'moved out' THEN 'moved'
      WHEN after = 'buried' THEN 'buried'
      WHEN after IN ('done', 'zombie') OR event = 'acked' THEN 'acked'
      ELSE 'open'
    END AS outcome,
    after = 'taken' AND before <> 'taken' AS takes
  FROM fresh
),
summed AS (
  SELECT
    node, job, date,
    max(struct(position, tube, key, after, reason, deliveries, nacks, returns, event)) AS last,
    max(IF(outcome IS NULL, NULL,
           struct(position, outcome, time, IF(before = 'taken', unix_millis(time) - unix_millis(since), NULL) AS run_ms))
    ) AS decided,
    min(created) AS put_at,
    min(IF(after = 'ready' AND before <> 'ready', time, NULL)) AS ready_at,
    min(IF(takes, struct(time, position, unix_millis(time) - unix_millis(since) AS wait_ms), NULL)) AS first_take,
    max(IF(takes, struct(time, position, session), NULL)) AS last_take,
    max(once) AS once,
    max(CAST(octet_length(body) AS BIGINT)) AS body_bytes,
    max(before = 'gone' AND event NOT LIKE 'moved in%') AS whole
  FROM news
  GROUP BY node, job, date
)
SELECT
  node, job, last.tube, last.key, last.after AS state, decided.outcome, last.reason, put_at, ready_at,
  first_take.time AS first_take_at, last_take.time AS last_take_at,
  IF(decided.outcome IN ('open', 'copy'), NULL, decided.time) AS finished_at,
  first_take.wait_ms,
  IF(decided.outcome IN ('open', 'copy'), NULL, decided.run_ms) AS run_ms,
  last.deliveries, last.nacks, last.returns, once, last_take.session, body_bytes, whole, last.event, last.position,
  decided.position AS outcome_position, date
FROM summed
