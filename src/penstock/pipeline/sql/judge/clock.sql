-- Did time go back, for a node?
--
-- Blocks of 64 positions are compared with the blocks before them. Within a block, only the rules about jobs judge times.
-- `first` has the least time of a block and the position of its event, in one number.
SELECT
  n, block * 64 + first % 64 AS position,
  concat('the event is ', latest_before - first DIV 64, ' ms older than an earlier event of the node') AS what
FROM (
  SELECT *, max(latest) OVER (PARTITION BY n ORDER BY block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest_before
  FROM (
    SELECT n, position DIV 64 AS block, min(t * 64 + position % 64) AS first, max(t) AS latest
    FROM narrow
    GROUP BY n, block
  )
)
WHERE latest_before > first DIV 64
