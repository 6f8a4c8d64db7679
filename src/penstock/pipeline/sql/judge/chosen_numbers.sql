-- Did two jobs of a tube have the same number at the same time?
--
-- Numbers below first_integer are chosen by producers. They can be used again when the job that had them is gone.
SELECT n, position, concat('number ', number, ' of the tube is the number of another job') AS what
FROM (
  SELECT
    narrow.n, position, number, before,
    lag(before) OVER (PARTITION BY narrow.n, narrow.tube_number, number ORDER BY position) AS last_before
  FROM narrow JOIN lives ON narrow.n = lives.n AND narrow.tube_number = lives.tube_number
    AND position >= start AND position < end
  WHERE number < first_integer AND ids = 'integer' AND NOT driven AND (before = 'gone' OR after = 'gone')
)
WHERE before = 'gone' AND last_before = 'gone'
