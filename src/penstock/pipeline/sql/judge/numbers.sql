-- Did a tube assign a number twice?
SELECT n, position, concat('number ', number, ' of the tube was used before, at position ', earlier) AS what
FROM (
  SELECT n, tube_number, number, min(position) AS earlier, max(position) AS position
  FROM narrow
  WHERE before = 'gone' AND number IS NOT NULL
  GROUP BY n, tube_number, number
  HAVING min(position) < max(position)
)
JOIN lives USING (n, tube_number)
WHERE position >= start AND position < end AND number >= first_integer AND ids = 'integer' AND NOT driven
