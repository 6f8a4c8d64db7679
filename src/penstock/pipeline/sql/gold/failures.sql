-- Why did jobs of each tube fail, how often, and how many were given up for it: buried, dropped or sent elsewhere?
SELECT
  date, tube,
  CASE
    WHEN event IN ('ttr passed', 'disconnected') THEN event
    ELSE coalesce(nullif(reason, ''), 'no reason given')
  END AS reason,
  count_if(kind = 'fail') AS count,
  count_if(after = 'buried' OR event = 'discarded') AS dead_letters
FROM steps
WHERE kind = 'fail' OR event IN ('buried', 'exhausted', 'discarded')
GROUP BY ALL
