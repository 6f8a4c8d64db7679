-- Which violations of each promise came first, and how many are there?
SELECT * FROM (
  SELECT
    *, count(*) OVER (PARTITION BY promise) AS total, row_number() OVER (PARTITION BY promise ORDER BY n, position) AS nth
  FROM broken
)
WHERE nth <=
