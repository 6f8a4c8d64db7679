-- What did each new event mean for its job: who held it and since when, since when was it ready, is it new to the lake?
--
-- fresh: the new events. jobs: silver before this turn, of which the jobs that are still there are carried on: each as a
-- row that stands for all of its events so far. The only place that says which events are puts, takes, acks and failures.
--
-- In a cluster several nodes have a job, and one of them is to hand it out. For the others it is aside: it came as a copy,
-- or was set aside because another has it. What is aside is in no backlog, and its ack is that of another node. Whoever
-- takes a job out of its queue by hand does so for its ttr, or in a tube that no two nodes share: there, orders are no
-- moments (in ns).
WITH news AS (
  SELECT
    *,
    event = 'moved in delayed' AND before_position = 0
      OR event IN ('switched to delayed', 'snatched delayed')
        AND `order` DIV 1000000 > unix_millis(created) - 86400000
        AND coalesce(unix_millis(wake) - unix_millis(time) <> ttr_ms, FALSE) AS aside
  FROM fresh
),
told AS (
  SELECT
    node, job, position, time, date, event, tube, before, after, key, reason, deliveries, nacks, returns, once,
    FALSE AS carried, aside,
    CASE
      WHEN aside THEN 'copy'
      -- What was acked or buried and is removed later was acked or buried all the same.
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
    IF(after = 'taken' AND before <> 'taken', coalesce(session, 0), NULL) AS taker,  -- 0: a claim, or anybody.
    CAST(octet_length(body) AS BIGINT) AS body_bytes,
    CAST(NULL AS TIMESTAMP) AS ready_at, CAST(NULL AS TIMESTAMP) AS first_take_at,
    CAST(NULL AS BIGINT) AS wait_ms, CAST(NULL AS BIGINT) AS run_ms
  FROM news
  UNION ALL
  SELECT
    node, job, position, NULL, NULL, event, tube, NULL, state, key, reason, deliveries, nacks, returns, once,
    TRUE, outcome = 'copy', outcome, finished_at, put_at, whole, ready_since, last_take_at,
    IF(last_take_at IS NULL, NULL, coalesce(session, 0)), body_bytes,
    ready_at, first_take_at, wait_ms, run_ms
  FROM jobs
  WHERE ended IS NULL
),
causes AS (
  SELECT
    *,
    event IN ('nacked', 'ttr passed', 'disconnected') AS failed,
    IF(event IN ('ttr passed', 'disconnected'), event, coalesce(nullif(reason, ''), 'no reason given')) AS own_cause
  FROM told
),
seen AS (
  SELECT
    *,
    row_number() OVER job = 1 AND NOT carried AS first,
    coalesce(lag(aside) OVER job, FALSE) AS was_aside,
    -- A job that leaves its tube in the moment of its failure goes where its retry policy sends it. One that has failed
    -- is ready, if only for a moment.
    event IN ('exhausted', 'discarded')
      OR event = 'moved out' AND lag(failed) OVER job AND lag(ready_from) OVER job = time AS given_up,
    lag(IF(failed, own_cause, NULL)) OVER job AS cause_before,
    last_value(held_from, TRUE) OVER past AS held_since,
    last_value(taker, TRUE) OVER past AS held_by,
    last_value(ready_from, TRUE) OVER past AS ready_since,
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
  -- What is given up is given up for the failure before, in whatever words that is told.
  IF(given_up, coalesce(cause_before, own_cause), own_cause) AS cause
FROM seen
