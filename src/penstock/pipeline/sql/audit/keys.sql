-- Were ever more jobs of one key taken at a time than their tube allows?
SELECT
  node, tube, job, position, time,
  concat(busy, ' jobs of key ', IF(is_valid_utf8(CAST(of_key AS STRING)), CAST(of_key AS STRING), hex(of_key)),
         ' were taken at once, where ', key_limit, ' may be') AS what
FROM (
  SELECT *, sum(change) OVER (PARTITION BY node, tube, of_key ORDER BY position) AS busy
  FROM (
    SELECT
      *,
      IF(after = 'taken', coalesce(key, X''), held_key) AS of_key,
      IF(after = 'taken', 1, -1) AS change
    FROM holds
    -- One that was taken before the lake begins is not known to have a key; its end frees none.
    WHERE key_limit IS NOT NULL AND (before = 'taken') <> (after = 'taken') AND (after = 'taken' OR held_key IS NOT NULL)
  )
)
WHERE change = 1 AND busy > key_limit
