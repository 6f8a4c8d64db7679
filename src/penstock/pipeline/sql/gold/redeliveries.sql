-- How many takes were not the first of their job, and why did taken jobs return to the tube, in each tube and minute?
SELECT
  date, tube, minute,
  sum(IF(kind = 'take', count, 0)) AS takes,
  sum(IF(again, count, 0)) AS redeliveries,
  sum(IF(event = 'nacked', count, 0)) AS nacked,
  sum(IF(event = 'ttr passed', count, 0)) AS ttr_passed,
  sum(IF(event = 'disconnected', count, 0)) AS disconnected,
  sum(IF(event IN ('released', 'requeued', 'postponed'), count, 0)) AS released,
  sum(IF(event = 'claim ended', count, 0)) AS claim_ended,
  sum(IF(event IN ('snatched', 'snatched delayed'), count, 0)) AS snatched,
  sum(IF(event = 'undelivered', count, 0)) AS undelivered
FROM summary
WHERE kind = 'take' OR before = 'taken' AND after IN ('ready', 'delayed') AND NOT aside
GROUP BY date, tube, minute
