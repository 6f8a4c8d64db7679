-- How many takes were not the first of their job, and why did taken jobs return to the tube, in each tube and minute?
SELECT
  date, tube, minute,
  count_if(kind = 'take') AS takes,
  count_if(kind = 'take' AND deliveries > 1) AS redeliveries,
  count_if(event = 'nacked') AS nacked,
  count_if(event = 'ttr passed') AS ttr_passed,
  count_if(event = 'disconnected') AS disconnected,
  count_if(event IN ('released', 'requeued', 'postponed')) AS released,
  count_if(event = 'claim ended') AS claim_ended,
  count_if(event IN ('snatched', 'snatched delayed')) AS snatched,
  count_if(event = 'undelivered') AS undelivered
FROM steps
WHERE kind = 'take' OR NOT carried AND before = 'taken' AND after IN ('ready', 'delayed') AND NOT aside
GROUP BY date, tube, minute
