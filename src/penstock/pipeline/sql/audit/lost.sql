-- Is anything that was acknowledged missing from a job's history?
--
-- Each row of a log names the row of its job before it, and the state the job was in: one that is not there, while rows
-- as old are, was lost. What is older than the lake is not judged.
SELECT
  node, tube, job, position, time,
  IF(last_position IS NULL,
     concat('begins with "', event, '", but the row before, at ', before_position, ', is missing'),
     concat('"', event, '" from ', before, ' follows position ', last_position, ', which left it ', last_after,
            ', and names position ', before_position)) AS what
FROM holds
WHERE last_position IS NULL AND before_position >= beginning
   OR last_position IS NOT NULL AND last_position <> position
      AND (last_position <> before_position OR last_after <> before)
