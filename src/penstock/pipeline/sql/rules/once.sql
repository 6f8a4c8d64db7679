-- Was a job with at-most-once delivery delivered more than once, or made available again after its delivery?
--
-- A delivery that did not reach its consumer (undelivered) does not count: it lowers the number of deliveries.
CASE
  WHEN once AND event IN ('taken', 'claimed') AND deliveries > 1
    THEN concat('delivery ', deliveries, ' of a job that may be delivered once')
  WHEN once AND deliveries > 0 AND after IN ('ready', 'delayed')
    THEN concat('"', event, '" made a job ', after, ' that may be delivered once and was delivered')
END
