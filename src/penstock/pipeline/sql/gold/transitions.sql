-- How often did jobs of each tube go from one state to another? Over all days, what the tube itself counts for life.
SELECT
  date, tube,
  IF(event LIKE 'moved in%', 'elsewhere', before) AS before,
  IF(event = 'moved out', 'elsewhere', after) AS after,
  count(*) AS count
FROM steps
WHERE NOT carried AND before <> after
GROUP BY ALL
