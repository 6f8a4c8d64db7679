-- Why did jobs of each tube fail, how often, and how many were given up for it: buried, dropped or sent elsewhere?
SELECT
  date, tube,
  cause AS reason,
  count_if(kind = 'fail') AS count,
  count_if(event = 'buried' OR given_up) AS dead_letters
FROM steps
WHERE NOT carried AND (kind = 'fail' OR event = 'buried' OR given_up)
GROUP BY ALL
