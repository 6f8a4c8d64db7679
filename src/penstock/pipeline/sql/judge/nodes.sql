-- Which times do the events of each node have, and how far is its clock ahead of others?
SELECT
  n, min(earliest) AS earliest, max_by(newest, last) AS newest, min_by(ahead_ms, abs(ahead_ms)) AS ahead_ms
FROM summary
GROUP BY n
