-- Did a tube accept a put beyond its capacity?
--
-- If the tube existed before the beginning, the number of its jobs at the beginning is not known. It is at least the
-- number of jobs that left the tube without having entered it.
--
-- Not judged: moves, because dead letters and results are always accepted; puts of shared tubes, which come from all
-- nodes; and tubes with a driver.
WITH bounded AS (SELECT * FROM lives WHERE (capacity > 0) AND NOT driven AND NOT shared),
changes AS (
  SELECT
    n, tube_number, position, event,
    sum(IF(before = 'gone', 1, -1)) OVER (PARTITION BY n, tube_number ORDER BY position) AS jobs
  FROM narrow LEFT SEMI JOIN bounded USING (n, tube_number)
  WHERE (before = 'gone') <> (after = 'gone')
),
counted AS (SELECT *, least(0, min(jobs) OVER (PARTITION BY n, tube_number)) AS fewest FROM changes)
SELECT
  counted.n, position,
  concat('put number ', jobs - IF(has_beginning, 0, fewest), ' into a tube with a capacity of ', capacity, ' jobs') AS what
FROM counted JOIN bounded ON counted.n = bounded.n AND counted.tube_number = bounded.tube_number
  AND position >= start AND position < end
WHERE event IN ('put', 'put delayed', 'put urgent', 'put staged') AND jobs - IF(has_beginning, 0, fewest) > capacity
