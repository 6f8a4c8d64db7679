-- Is any acknowledged event missing from the history of a job?
--
-- Each row of a log has the position of the previous row of its job, and the state after it. If the previous row is not
-- in the lake, although its position is not before the beginning of the lake, it was lost.
SELECT
  node, tube, job, position, time,
  IF(last_position IS NULL,
     concat('the history starts with "', event, '"; the previous row at position ', before_position, ' is missing'),
     concat('"', event, '" from ', before, ' names position ', before_position, ' as the previous row, but the lake has ',
            'position ', last_position, ' with state ', last_after)) AS what
FROM holds
WHERE last_position IS NULL AND before_position >= beginning
   OR last_position IS NOT NULL AND last_position <> position
      AND (last_position <> before_position OR last_after <> before)
