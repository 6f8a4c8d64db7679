-- Since when was each job in its state at each new event, which session held it, and is the job new to the lake?
--
-- The view fresh has the new events. The view jobs has silver before this turn; each of its unfinished jobs becomes a
-- "carried" row that stands for all of its earlier events. This query is the only place that defines which events are
-- puts, takes, acks and failures.
--
-- An event has the time at which its job entered the state before it (since). Events of version 1 of the log lack it. For
-- them, and only if there are any (:inferred), it is the time of an earlier event of the job.
--
-- In a cluster, several nodes have a job, and one of them delivers it. On the others it is "aside": it arrived as a copy,
-- or it was delayed because another node has it queued or taken. Jobs that are aside are not in the backlog, and their ack
-- is counted on another node. The log does not mark them, so two rules recognise them. Only tubes that can be replicated
-- have orders that are creation times (in ns). In these tubes, DEQUEUE delays a job for exactly its ttr, and a node that
-- sets a job aside delays it for another time. A job of such a tube that a user delays for another time (JOB SWITCH, JOB
-- SNATCH) is counted as aside by mistake.
WITH news AS (
  SELECT
    *,
    event = 'moved in delayed' AND before_position = 0
      OR event IN ('switched to delayed', 'snatched delayed')
        AND `order` DIV 1000000 > unix_millis(created) - 86400000
        AND coalesce(unix_millis(wake) - unix_millis(time) <> ttr_ms, FALSE) AS aside
  FROM fresh
),
combined AS (
  SELECT
    node, job, position, time, date, event, tube, before, after, key, reason, deliveries, nacks, returns, once,
    FALSE AS carried, aside,
    CASE
      WHEN aside THEN 'copy'
      -- A job that was acked or buried keeps this outcome if it is removed later.
      WHEN before IN ('done', 'zombie', 'buried') AND after = 'gone' AND event NOT IN ('acked', 'moved out') THEN NULL
      WHEN event IN ('expired', 'deleted', 'truncated', 'withdrawn') THEN event
      WHEN event = 'discarded' THEN 'dropped'
      WHEN event = 'moved out' THEN 'moved'
      WHEN after = 'buried' THEN 'buried'
      WHEN after IN ('done', 'zombie') OR event = 'acked' THEN 'acked'
      ELSE 'open'
    END AS outcome,
    time AS finished_at,
    created AS put_at,
    before = 'gone' AND event NOT LIKE 'moved in%' AS whole,
    IF(after = 'ready' AND before <> 'ready', time, NULL) AS ready_from,
    IF(after = 'taken' AND before <> 'taken', time, NULL) AS held_from,
    IF(after = 'taken' AND before <> 'taken', coalesce(session, 0), NULL) AS taker,  -- 0: no session.
    CAST(octet_length(body) AS BIGINT) AS body_bytes,
    since, session,
    CAST(NULL AS TIMESTAMP) AS ready_at, CAST(NULL AS TIMESTAMP) AS first_take_at,
    CAST(NULL AS BIGINT) AS wait_ms, CAST(NULL AS BIGINT) AS run_ms
  FROM news
  UNION ALL
  SELECT
    node, job, position, NULL, NULL, event, tube, NULL, state, key, reason, deliveries, nacks, returns, once,
    TRUE, outcome = 'copy', outcome, finished_at, put_at, whole, ready_since, last_take_at,
    IF(last_take_at IS NULL, NULL, coalesce(session, 0)), body_bytes,
    NULL, NULL,
    ready_at, first_take_at, wait_ms, run_ms
  FROM jobs
  WHERE ended IS NULL
),
causes AS (
  SELECT
    *,
    event IN ('nacked', 'ttr passed', 'disconnected') AS failed,
    IF(event IN ('ttr passed', 'disconnected'), event, coalesce(nullif(reason, ''), 'no reason given')) AS own_cause
  FROM combined
),
seen AS (
  SELECT
    * EXCEPT (since, session),
    row_number() OVER job = 1 AND NOT carried AS first,
    coalesce(lag(aside) OVER job, FALSE) AS was_aside,
    -- A failed job becomes ready first. If it leaves its tube at the same time, its retry policy moves it elsewhere.
    event IN ('exhausted', 'discarded')
      OR event = 'moved out' AND lag(failed) OVER job AND lag(ready_from) OVER job = time AS given_up,
    lag(IF(failed, own_cause, NULL)) OVER job AS cause_before,
    CASE
      WHEN since IS NOT NULL OR NOT :inferred THEN since
      WHEN before = 'taken' THEN last_value(held_from, TRUE) OVER past
      WHEN before = 'ready' THEN last_value(ready_from, TRUE) OVER past
    END AS since,
    IF(since IS NOT NULL OR NOT :inferred, coalesce(session, 0), last_value(taker, TRUE) OVER past) AS held_by,
    date_trunc(:grain, time) AS minute
  FROM causes
  WINDOW
    job AS (PARTITION BY node, job ORDER BY position),
    past AS (PARTITION BY node, job ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT
  * EXCEPT (outcome),
  IF(was_aside AND after = 'gone', NULL, outcome) AS outcome,
  CASE
    WHEN carried THEN NULL
    WHEN event IN ('put', 'put delayed', 'put urgent', 'published', 'published delayed') THEN 'put'
    WHEN event IN ('taken', 'claimed') THEN 'take'
    WHEN event IN ('acked', 'kept', 'lingered') AND NOT was_aside THEN 'ack'
    WHEN failed OR event = 'buried' AND before = 'taken' THEN 'fail'
  END AS kind,
  -- A job is given up because of its last failure, so the reason of that failure is used.
  IF(given_up, coalesce(cause_before, own_cause), own_cause) AS cause
FROM seen
