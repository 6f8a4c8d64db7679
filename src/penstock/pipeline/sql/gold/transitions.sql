-- How often did jobs of each tube change from one state to another?
--
-- The sum over all days equals the counts that the tube keeps itself since it was created.
SELECT
  date, tube,
  IF(event LIKE 'moved in%', 'elsewhere', before) AS before,
  IF(event = 'moved out', 'elsewhere', after) AS after,
  sum(count) AS count
FROM summary
WHERE before <> after
GROUP BY ALL
