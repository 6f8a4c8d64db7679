-- How many tubes and events are there of each kind of policy?
--
-- If a tube assigned each number of an interval once, their count and their exclusive or are known. Then no query needs to
-- look for numbers that were assigned twice.
SELECT
  policies.n IS NOT NULL AS known,
  coalesce(driven, FALSE) AS driven, coalesce(shared, FALSE) AS shared, coalesce(limited, FALSE) AS limited,
  coalesce(keyed, FALSE) AS keyed, coalesce(bounded, FALSE) AS bounded, coalesce(bytes_bounded, FALSE) AS bytes_bounded,
  coalesce(numbered, FALSE) AND numbers > 0 AND NOT (
    numbers = greatest_number - least_number + 1
    AND numbers_xor = element_at(array(greatest_number, 1, greatest_number + 1, 0), CAST(pmod(greatest_number, 4) AS INT) + 1) ^ element_at(array(least_number - 1, 1, least_number - 1 + 1, 0), CAST(pmod(least_number - 1, 4) AS INT) + 1)
  ) AS numbered, coalesce(chosen, FALSE) AS chosen,
  count(*) AS lives, sum(events) AS events, sum(old_events) AS old_events
FROM summary LEFT JOIN (
  SELECT
    n, tube_number, bool_or(driven) AS driven, bool_or(shared) AS shared, bool_or(keys = 'limited') AS limited,
    bool_or(keys <> 'none') AS keyed, bool_or(capacity > 0) AS bounded, bool_or(capacity_bytes > 0) AS bytes_bounded,
    bool_or(ids = 'integer' AND NOT driven) AS numbered,
    bool_or(ids = 'integer' AND NOT driven AND first_integer > 0) AS chosen
  FROM lives
  GROUP BY n, tube_number
) AS policies USING (n, tube_number)
GROUP BY ALL
