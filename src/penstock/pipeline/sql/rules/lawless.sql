-- Did a job change its state in a way that no rule allows?
CASE
  WHEN concat_ws('/', event, before, after) NOT IN (:transitions)
    THEN concat('"', event, '" changed the state from ', before, ' to ', after)
END
