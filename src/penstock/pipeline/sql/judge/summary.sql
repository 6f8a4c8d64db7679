-- How many events does each life of a tube have, and of which times?
--
-- A job that arrives from another node keeps its place, which is the time of its creation (ns) on the clock of the node
-- that created it. Its age is counted on the clock of this node, so the difference shows how far this clock is ahead.
SELECT
  n, tube_number, count(*) AS events, count(*) - count(since) AS old_events, max(position) AS last, min(t) AS earliest,
  max_by(t, position) AS newest, min_by(ahead_ms, abs(ahead_ms)) AS ahead_ms,
  count(new_number) AS numbers, min(new_number) AS least_number, max(new_number) AS greatest_number,
  bit_xor(new_number) AS numbers_xor
FROM (
  SELECT
    *,
    IF(before_position = 0 AND event IN ('moved in', 'moved in delayed') AND `order` > 1000000000000000,
       created - `order` DIV 1000000, NULL) AS ahead_ms,
    IF(before = 'gone', number, NULL) AS new_number
  FROM narrow
)
GROUP BY n, tube_number
