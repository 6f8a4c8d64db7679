-- Did anyone finish, return or move a job that a claim held?
CASE
  WHEN before = 'taken' AND last.claimed AND last.position = before_position
    AND event NOT IN ('acked', 'kept', 'lingered', 'claim ended', 'deleted', 'doomed', 'judged')
    AND NOT (event IN ('nacked', 'buried', 'moved out') AND last.judged)
    THEN concat('"', event, '" of a job that a claim held')
END
