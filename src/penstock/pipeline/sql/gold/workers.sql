-- What did each worker do: jobs taken, acked and failed, and for how long it held them?
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
    IF(before = 'taken' AND after <> 'taken', unix_millis(time) - unix_millis(held_since), NULL) AS busy_ms
  FROM steps
  WHERE NOT carried AND (kind = 'take' OR before = 'taken' AND after <> 'taken')
)
-- What claims take, and jobs that anybody may ack, are no session's.
WHERE session > 0
GROUP BY ALL
