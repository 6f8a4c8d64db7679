-- How many jobs were ready, taken, delayed, buried and kept at the end of each minute in which these numbers changed?
--
-- The running sum of flows. The view backlog has the last day before them. Every day starts with a row for each tube, so
-- that a day can be computed from the day before it alone.
WITH opening AS (
  SELECT
    tube,
    max_by(struct(ready, taken, delayed, buried, kept), minute) AS at
  FROM backlog
  GROUP BY tube
),
days AS (SELECT DISTINCT date FROM flows),
first AS (SELECT min(date) AS date FROM flows),
tubes AS (SELECT tube FROM opening UNION SELECT tube FROM flows),
moves AS (
  SELECT date, tube, minute, ready, taken, delayed, buried, kept FROM flows
  UNION ALL
  SELECT date, tube, CAST(date AS TIMESTAMP), 0, 0, 0, 0, 0 FROM days CROSS JOIN tubes
  UNION ALL
  SELECT date, tube, CAST(date AS TIMESTAMP), at.ready, at.taken, at.delayed, at.buried, at.kept
  FROM first CROSS JOIN opening
),
summed AS (
  SELECT
    date, tube, minute,
    sum(ready) AS ready, sum(taken) AS taken, sum(delayed) AS delayed, sum(buried) AS buried, sum(kept) AS kept
  FROM moves
  GROUP BY date, tube, minute
)
SELECT
  date, tube, minute,
  sum(ready) OVER past AS ready,
  sum(taken) OVER past AS taken,
  sum(delayed) OVER past AS delayed,
  sum(buried) OVER past AS buried,
  sum(kept) OVER past AS kept
FROM summed
WINDOW past AS (PARTITION BY tube ORDER BY minute)
