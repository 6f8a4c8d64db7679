-- Which policy did each life of a tube have, at which positions?
--
-- A policy is valid from `start` until `end`. A life without a known policy has no row here. Fields that an older
-- version did not write have their defaults. The jobs of a `shared` tube can have copies on other nodes.
SELECT
  n, tube_number, tube, start, coalesce(end, 9223372036854775807) AS end, has_beginning,
  `type`, `order`, keys, key_limit, owner, ttl_while_taken, capacity, ids,
  coalesce(bury_by, 'anyone') AS bury_by,
  coalesce(ack_cancels, FALSE) AS ack_cancels,
  coalesce(capacity_bytes, 0) AS capacity_bytes,
  coalesce(first_integer, 0) AS first_integer,
  coalesce(driven, FALSE) AS driven,
  coalesce(`order` = 'creation' AND owner = 'anyone' AND keys = 'none' AND after_ack = 'goes' AND NOT driven, FALSE)
    AS shared
FROM (
  SELECT *, inline(array(from_json(policy, '
    `type` STRING, `order` STRING, keys STRING, key_limit INT, owner STRING, bury_by STRING, ack_cancels BOOLEAN,
    ttl_while_taken STRING, after_ack STRING, capacity BIGINT, capacity_bytes BIGINT, ids STRING, first_integer BIGINT,
    driven BOOLEAN')))
  FROM (
    SELECT
      :node_number AS n, tube_number, tube, position AS start, policy,
      lead(position) OVER life AS end,
      first_value(event) OVER life = 'made' AND first_value(position) OVER life >= element_at(:beginnings, :node_number)
        AS has_beginning
    FROM tubes
    WINDOW life AS (PARTITION BY node, tube_number ORDER BY position)
  )
  WHERE policy IS NOT NULL
)
LEFT SEMI JOIN summary USING (n, tube_number)
