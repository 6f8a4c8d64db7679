-- By how much did the number of jobs in each state change, in each tube and minute, and how far did it rise in between?
--
-- If the put of a job is not in the lake, its first event adds the job to its new state and does not subtract it from the
-- earlier one. The same holds for its first event after a gap (see gaps.py), so a group has no events on both sides of a
-- gap. If several nodes have a job, only the node that delivers it counts.
SELECT
  date, tube, minute, node,
  min(position) AS position,
  sum(ready) AS ready, sum(taken) AS taken, sum(delayed) AS delayed, sum(buried) AS buried, sum(kept) AS kept,
  greatest(0, max(ready_level)) AS ready_peak,
  greatest(0, max(taken_level)) AS taken_peak
FROM (
  SELECT *, sum(ready) OVER past AS ready_level, sum(taken) OVER past AS taken_level
  FROM (
    SELECT
      date, tube, minute, node, part, position,
      CAST(after = 'ready' AS INT) - CAST(before = 'ready' AND NOT first AS INT) AS ready,
      CAST(after = 'taken' AS INT) - CAST(before = 'taken' AND NOT first AS INT) AS taken,
      CAST(after = 'delayed' AND NOT aside AS INT) - CAST(before = 'delayed' AND NOT first AND NOT was_aside AS INT)
        AS delayed,
      CAST(after = 'buried' AS INT) - CAST(before = 'buried' AND NOT first AS INT) AS buried,
      CAST(after IN ('done', 'zombie') AS INT) - CAST(before IN ('done', 'zombie') AND NOT first AS INT) AS kept
    FROM steps
    WHERE before <> after OR first OR aside <> was_aside
  )
  WINDOW past AS (PARTITION BY node, tube, minute, part ORDER BY position ROWS UNBOUNDED PRECEDING)
)
GROUP BY date, tube, minute, node, part
