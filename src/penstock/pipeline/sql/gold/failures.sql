-- Why and how often did jobs of each tube fail, and how many were given up: buried, dropped or moved to another tube?
SELECT
  date, tube,
  cause AS reason,
  coalesce(sum(count) FILTER (WHERE kind = 'fail'), 0) AS count,
  coalesce(sum(count) FILTER (WHERE given_up), 0) AS dead_letters,
  max(example) AS example_max
FROM summary
WHERE cause IS NOT NULL
GROUP BY ALL
