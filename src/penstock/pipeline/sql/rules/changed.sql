-- Did a job change in a way that its event does not allow?
--
-- A job that arrives from another tube (before = 'gone') has another number, key and place.
CASE
  WHEN last IS NULL OR last.position <> before_position OR last.after <> before OR before = 'gone' THEN NULL
  WHEN identity <> last.identity AND NOT driven THEN 'the creation, tube, number or at-most-once mark of the job changed'
  WHEN looks <> last.looks AND NOT driven
    AND event NOT IN ('acked', 'released', 'postponed', 'requeued', 'buried', 'kept', 'lingered', 'kicked', 'kicked delayed',
                      'prioritized', 'edited')
    THEN concat('the key, the priority or the kind of the body changed with "', event, '"')
  WHEN `order` <> last.`order` AND event NOT IN ('published', 'published delayed', 'requeued')
    THEN concat('the place of the job in its tube changed with "', event, '"')
  WHEN NOT expiry <=> last.expiry
    AND event NOT IN ('published', 'published delayed', 'released', 'postponed', 'buried', 'touched', 'kicked',
                      'kicked delayed', 'kept', 'restarted', 'restarted delayed', 'snatched delayed', 'switched to ready',
                      'switched to delayed', 'switched to buried', 'switched to done', 'switched to zombie')
    THEN concat('the end of the ttl changed with "', event, '"')
  WHEN deliveries <> last.deliveries + CASE WHEN after = 'taken' AND before <> 'taken' THEN 1 WHEN event = 'undelivered' THEN -1
                                       ELSE 0 END
    -- After a power cut, at-most-once jobs that may have been delivered are buried.
    AND NOT (once AND event = 'buried' AND deliveries = last.deliveries + 1)
    THEN concat('the number of deliveries changed from ', last.deliveries, ' to ', deliveries, ' with "', event, '"')
END
