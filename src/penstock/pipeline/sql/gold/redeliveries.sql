-- How many takes were not the first of their job, and why did jobs come back, in each tube and minute?
SELECT
  date, tube, minute,
  count_if(kind = 'take') AS takes,
  count_if(kind = 'take' AND deliveries > 1) AS redeliveries,
  count_if(event = 'nacked') AS nacked,
  count_if(event = 'ttr passed') AS ttr_passed,
  count_if(event = 'disconnected') AS disconnected,
  count_if(event IN ('released', 'requeued', 'postponed')) AS released
FROM steps
WHERE kind IN ('take', 'fail') OR event IN ('released', 'requeued', 'postponed')
GROUP BY date, tube, minute
