-- Which event of its job came before each event?
--
-- `last` is the previous event of the job in the history. `alone` has the broken rules about the event alone. The columns
-- of the policy are null if it is not known.
SELECT
  *,
  lag(struct(
    position, after, wake, expiry, `order`, identity, looks, deliveries, claimed, event = 'judged' AS judged:old_session
  )) OVER (PARTITION BY n, job ORDER BY position) AS last
FROM (
  SELECT
    n, job, position, t, event, before, after, before_position, wake, expiry, `order`, identity, looks, deliveries, claimed,
    once, actor IS NULL AS is_timer:old_columns,
    driven, shared, alone
  FROM judged
)
