-- Do the jobs of any key wait longer than those of other keys in the same tube?
SELECT
  date, tube,
  IF(is_valid_utf8(CAST(key AS STRING)), CAST(key AS STRING), concat('0x', hex(key))) AS key,
  jobs, deliveries, acks, wait_ms, wait_ms_max
FROM (
  SELECT
    date, tube, key,
    count_if(kind = 'put') AS jobs,
    count_if(kind = 'take') AS deliveries,
    count_if(kind = 'ack') AS acks,
    coalesce(sum(IF(kind = 'take', ms, NULL)), 0) AS wait_ms,
    coalesce(max(IF(kind = 'take', ms, NULL)), 0) AS wait_ms_max
  FROM steps
  WHERE key IS NOT NULL AND kind IS NOT NULL
  GROUP BY date, tube, key
)
