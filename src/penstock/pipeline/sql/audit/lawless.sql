-- Did any job go from one state to another in a way that no rule allows, or vanish without an ack, a delete or its ttl?
SELECT
  node, tube, job, position, time, concat('"', event, '" took it from ', before, ' to ', after) AS what
FROM holds LEFT ANTI JOIN rules USING (event, before, after)
