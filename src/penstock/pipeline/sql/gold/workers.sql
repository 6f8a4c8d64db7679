-- How many jobs did each worker take, ack and fail, and how long did it hold them?
--
-- An event has the session that takes, holds or held the job. Jobs of claims, and jobs that any session may ack, belong to
-- no session.
SELECT
  date, node, session,
  count_if(kind = 'take') AS taken,
  count_if(kind = 'ack') AS acked,
  count_if(kind = 'fail') AS failed,
  coalesce(sum(IF(before = 'taken' AND after <> 'taken', ms, NULL)), 0) AS busy_ms
FROM steps
WHERE session > 0 AND (kind = 'take' OR before = 'taken' AND after <> 'taken')
GROUP BY ALL
