-- Was a job finished or touched after its ttr?
--
-- Not judged: releases, because releasing all jobs of a tube includes jobs whose ttr has just ended.
CASE
  WHEN before = 'taken' AND last.position = before_position AND last.wake <= t AND NOT driven AND NOT shared
    AND event IN ('acked', 'kept', 'lingered', 'nacked', 'requeued', 'postponed', 'touched')
    -- A timer touches the taken jobs of a paused tube.
    AND NOT (event = 'touched' AND is_timer)
    THEN concat('"', event, '" ', t - last.wake, ' ms after the ttr of the job')
END
