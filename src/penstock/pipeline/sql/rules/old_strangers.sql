-- Did a session ack a job that another session held, in version 1 of the log?
--
-- Version 1 has the acting session only in acks, as the session. The event before has the holder.
CASE
  WHEN before = 'taken' AND is_old AND event IN ('acked', 'kept', 'lingered') AND owner = 'session' AND NOT driven
    AND last.position = before_position AND session <> last.session
    THEN concat('"', event, '" by session ', session, ' of a job that session ', last.session, ' held')
END
