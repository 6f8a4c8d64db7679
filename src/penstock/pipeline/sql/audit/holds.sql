-- Which session held each job at each event, and which event of the job came before?
--
-- All other queries of the audit read this one. The view tubes has the guarantees of the tubes, as far as they are known.
SELECT
  events.*,
  lag(position) OVER job AS last_position,
  lag(after) OVER job AS last_after,
  last_value(IF(after = 'taken' AND before <> 'taken', coalesce(session, 0), NULL), TRUE) OVER past AS held_by,
  last_value(IF(after = 'taken' AND before <> 'taken', coalesce(key, X''), NULL), TRUE) OVER past AS held_key,
  min(position) OVER (PARTITION BY node) AS beginning,
  owned,
  cancels,
  key_limit
FROM events LEFT JOIN tubes USING (node, tube)
WINDOW
  job AS (PARTITION BY node, job ORDER BY position),
  past AS (PARTITION BY node, job ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
