-- Did a session finish, move or touch a job that another session held?
--
-- Not judged: releases, because every session may release all taken jobs of a tube; deletes and snatches, because every
-- session may use them; and tubes with a driver, which changes its tasks itself. If the policy of a tube is changed, the
-- session of a taken job may be unknown (null).
CASE
  WHEN event = 'acked' AND before <> 'taken' AND NOT ack_cancels AND NOT shared
    THEN concat('"acked" of a job that was ', before)
  WHEN before = 'taken' AND session IS NOT NULL AND NOT actor <=> session AND since IS NOT NULL AND NOT driven
    AND (owner = 'session' AND event IN ('acked', 'kept', 'lingered', 'nacked', 'postponed', 'requeued', 'moved out')
      OR owner = 'session' AND event = 'touched' AND actor IS NOT NULL
      OR bury_by = 'session' AND event = 'buried' AND actor IS NOT NULL)
    THEN concat('"', event, '" by ', coalesce(concat('session ', actor), 'no session'), ' of a job that session ', session,
                ' held')
END
