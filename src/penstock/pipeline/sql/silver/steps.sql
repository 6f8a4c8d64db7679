-- What happened to the job at each new event?
--
-- The view fresh has the new events. The view parts_without_gaps has the parts of the nodes' histories between gaps, and
-- the first position of each. Everything is computed from the event alone, because an event has the time at which its job
-- entered the state before it (since), and flags: 8 (the job is aside: another node of the cluster has it queued or
-- taken), 16 (it was aside before), 32 (its retry policy gives it up). This query is the only place that defines which
-- events are puts, takes, acks and failures.
SELECT /*+ BROADCAST(parts) */
  fresh.node, job, position, time, date, event, tube, before, after, key, session, deliveries,
  timestamp_millis(CASE :grain WHEN 'second' THEN unix_millis(time) DIV 1000 * 1000
                               ELSE unix_millis(time) DIV 60000 * 60000 END) AS minute,
  unix_millis(time) - unix_millis(since) AS ms,
  flags & 8 <> 0 AS aside,
  flags & 16 <> 0 AS was_aside,
  -- The put of the job is not in the lake, or there is a gap after it.
  before <> 'gone' AND before_position < begin AS first,
  begin AS part,
  CASE
    WHEN event IN ('put', 'put delayed', 'put urgent', 'published', 'published delayed') THEN 'put'
    WHEN event IN ('taken', 'claimed') THEN 'take'
    WHEN event IN ('acked', 'kept', 'lingered') AND flags & 16 = 0 THEN 'ack'
    WHEN event IN ('nacked', 'ttr passed', 'disconnected') OR event = 'buried' AND before = 'taken' THEN 'fail'
  END AS kind,
  event = 'buried' OR event IN ('exhausted', 'discarded') OR flags & 32 <> 0 AS given_up,
  -- The engine writes "failed 3 times, at last: 404" when it gives up a job. Its cause is the last failure.
  CASE
    WHEN event IN ('ttr passed', 'disconnected') THEN event
    WHEN event IN ('nacked', 'buried', 'exhausted', 'discarded') OR flags & 32 <> 0
      THEN coalesce(nullif(regexp_replace(reason, '^failed [0-9]+ times?, at last: ', ''), ''), 'no reason given')
  END AS cause
FROM fresh
JOIN parts_without_gaps AS parts ON fresh.node = parts.node AND fresh.position >= parts.low AND fresh.position < parts.high
