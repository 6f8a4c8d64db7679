-- Is an event missing from the history of a job?
--
-- Each row of a log has the position of the previous row of its job, and the state after it.
CASE
  WHEN last.position <> position AND (last.position <> before_position OR last.after <> before)
    THEN concat('"', event, '" changed a job that was ', before, ' since position ', before_position,
                ', but the previous event is at position ', last.position, ' and left the job ', last.after)
  WHEN last IS NULL AND before_position > 0 AND before_position >= element_at(:beginnings, n)
    THEN concat('the history of the job starts with "', event, '"; its previous event at position ', before_position,
                ' is missing')
END
