-- Is any event in the lake more than once?
SELECT
  node, tube, job, position, time, concat('position ', position, ' is in the lake more than once') AS what
FROM holds
WHERE last_position = position
