-- Did any session ack, nack, requeue or touch a job that another session held?
--
-- Not judged: releases, because every session may release all taken jobs of a tube, and buries, because most tubes allow
-- them to every session. Version 1 of the log (no since) has the acting session only in acks, as the session.
SELECT
  node, tube, job, position, time,
  IF(before <> 'taken',
     concat('"', event, '" of a job that was ', before),
     concat('"', event, '" by session ', acted, ' of a job that session ', held_by, ' held')) AS what
FROM (
  SELECT
    *,
    event IN ('acked', 'kept', 'lingered') AS is_ack,
    IF(since IS NULL, IF(event IN ('acked', 'kept', 'lingered'), session, NULL), actor) AS acted
  FROM holds
)
WHERE is_ack AND before <> 'taken' AND NOT cancels
   OR (is_ack OR event IN ('nacked', 'postponed', 'requeued', 'touched'))
     AND before = 'taken' AND owned AND acted <> held_by
     -- A job of a claim (0) belongs to no session. In version 2, the acks of a claim have an actor, too.
     AND (held_by > 0 OR since IS NULL)
