-- Was any job acked by a session that did not hold it?
SELECT
  node, tube, job, position, time,
  IF(before <> 'taken',
     concat('"', event, '" of a job that was ', before),
     concat('"', event, '" by session ', session, ' of a job that session ', held_by, ' held')) AS what
FROM holds
WHERE event IN ('acked', 'kept', 'lingered')
  AND (before <> 'taken' AND NOT cancels OR before = 'taken' AND owned AND session <> held_by)
