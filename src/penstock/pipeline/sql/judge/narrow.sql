-- What does the judge need of each event?
--
-- Times are milliseconds, and the number of a node (n) replaces its id, because the other queries sort or group these
-- rows. `identity` has the fields of a job that change only with its tube. `looks` has the fields that a client can
-- change when a job is given back or finished.
SELECT
  :node_number AS n,
  position, unix_millis(time) AS t, event, before, after, job, tube_number, before_position, session, actor,
  unix_millis(since) AS since, unix_millis(wake) AS wake, unix_millis(expiry) AS expiry, unix_millis(created) AS created,
  number, priority, `order`, deliveries, once,
  flags & 2 = 2 AS claimed,
  xxhash64(key) AS key,
  xxhash64(created, once, ttl_minutes, tube_number, number) AS identity,
  xxhash64(key, priority, body_kind, format) AS looks
FROM events
