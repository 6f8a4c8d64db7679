-- Did any job change its state in a way that no rule allows, or end without an ack, a delete or its ttl?
SELECT
  node, tube, job, position, time, concat('"', event, '" changed the state from ', before, ' to ', after) AS what
FROM holds LEFT ANTI JOIN rules USING (event, before, after)
