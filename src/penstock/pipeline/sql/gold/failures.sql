-- Why and how often did jobs of each tube fail, and how many were given up: buried, dropped or moved to another tube?
SELECT
  date, tube,
  cause AS reason,
  count_if(kind = 'fail') AS count,
  count_if(event = 'buried' OR given_up) AS dead_letters
FROM steps
WHERE NOT carried AND (kind = 'fail' OR event = 'buried' OR given_up)
GROUP BY ALL
