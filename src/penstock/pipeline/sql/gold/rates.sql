-- How many jobs were put, taken, acked and failed in each tube and minute?
SELECT
  date, tube, minute,
  count_if(kind = 'put') AS puts,
  count_if(kind = 'take') AS takes,
  count_if(kind = 'ack') AS acks,
  count_if(kind = 'fail') AS fails
FROM steps
WHERE kind IS NOT NULL
GROUP BY date, tube, minute
