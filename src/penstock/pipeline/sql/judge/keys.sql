-- Were more jobs of one key taken at the same time than the tube allows?
--
-- A job can get another key when it is given back, so the key of its delivery counts. A job that was taken before the
-- beginning is not counted, because the key of its delivery is not known.
WITH limited AS (SELECT * FROM lives WHERE keys = 'limited'),
holds AS (
  SELECT
    n, tube_number, position, after = 'taken' AS begins,
    IF(after = 'taken', key, lag(IF(after = 'taken', key, NULL)) OVER (PARTITION BY n, job ORDER BY position)) AS of_key
  FROM narrow LEFT SEMI JOIN limited USING (n, tube_number)
  WHERE (before = 'taken') <> (after = 'taken')
),
counted AS (
  SELECT *, sum(IF(begins, 1, -1)) OVER (PARTITION BY n, tube_number, of_key ORDER BY position) AS busy
  FROM holds
  WHERE of_key IS NOT NULL
)
SELECT
  counted.n, position,
  concat(busy, ' jobs of one key were taken at the same time; the limit is ', key_limit) AS what
FROM counted JOIN limited ON counted.n = limited.n AND counted.tube_number = limited.tube_number
  AND position >= start AND position < end
WHERE begins AND busy > key_limit
