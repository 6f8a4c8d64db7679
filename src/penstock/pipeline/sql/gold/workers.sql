-- How many jobs did each worker take, ack and fail, and how long did it hold them?
SELECT
  date, node, session,
  count_if(kind = 'take') AS taken,
  count_if(kind = 'ack') AS acked,
  count_if(kind = 'fail') AS failed,
  coalesce(sum(busy_ms), 0) AS busy_ms
FROM (
  SELECT
    date, node, kind,
    IF(kind = 'take', taker, held_by) AS session,
    IF(before = 'taken' AND after <> 'taken', unix_millis(time) - unix_millis(since), NULL) AS busy_ms
  FROM steps
  WHERE NOT carried AND (kind = 'take' OR before = 'taken' AND after <> 'taken')
)
-- Jobs that were claimed, or that any session may ack, belong to no session.
WHERE session > 0
GROUP BY ALL
