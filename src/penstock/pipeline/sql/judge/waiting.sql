-- Which events made jobs available for deliveries, or ended that?
--
-- Jobs with equal `line` have a common order: that of their tube, or of their key if the tube has keys. In a tube with
-- keys, a take may name a key, so the order of jobs with different keys is not known from the log. The takes of
-- at-most-once jobs are not judged, because a node also takes them to hand them over to another node.
--
-- `kind` is a sum: 1 if the job becomes ready, 2 if it was ready, 4 if it is taken.
SELECT
  xxhash64(n, tube_number, key) AS line, n, position, before_position, priority, `order`,
  IF(after = 'ready', 1, 0) + IF(before = 'ready', IF(event IN ('taken', 'claimed') AND NOT once, 6, 2), 0) AS kind
FROM narrow
LEFT SEMI JOIN (SELECT * FROM lives WHERE NOT driven) AS known USING (n, tube_number)
WHERE before = 'ready' OR after = 'ready'
