-- Were more jobs of one key taken at the same time than their tube allows?
SELECT
  node, tube, job, position, time,
  concat(busy, ' jobs of key ', IF(is_valid_utf8(CAST(of_key AS STRING)), CAST(of_key AS STRING), hex(of_key)),
         ' were taken at the same time; the limit is ', key_limit) AS what
FROM (
  SELECT *, sum(change) OVER (PARTITION BY node, tube, of_key ORDER BY position) AS busy
  FROM (
    SELECT
      *,
      IF(after = 'taken', coalesce(key, X''), held_key) AS of_key,
      IF(after = 'taken', 1, -1) AS change
    FROM holds
    -- The key of a job that was taken before the lake begins is not known, so its end is not counted.
    WHERE key_limit IS NOT NULL AND (before = 'taken') <> (after = 'taken') AND (after = 'taken' OR held_key IS NOT NULL)
  )
)
WHERE change = 1 AND busy > key_limit
