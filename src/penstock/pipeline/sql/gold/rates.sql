-- How many jobs were put, taken, acked and failed in each tube and minute?
SELECT
  date, tube, minute,
  sum(IF(kind = 'put', count, 0)) AS puts,
  sum(IF(kind = 'take', count, 0)) AS takes,
  sum(IF(kind = 'ack', count, 0)) AS acks,
  sum(IF(kind = 'fail', count, 0)) AS fails
FROM summary
WHERE kind IS NOT NULL
GROUP BY date, tube, minute
