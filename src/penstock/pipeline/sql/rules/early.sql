-- Did a delay, a ttr or the time of a zombie end too early?
--
-- The event before has the time at which the state ends by itself. Kick, switch, snatch and restart may end it earlier,
-- and are other events. A driver ends delays when it wants to.
--
-- In shared tubes, other nodes change the timers of jobs, and the log does not show it. A ttr can end half a second
-- early there. Delays of shared tubes are judged only if there is one node.
CASE
  WHEN event IN ('delay passed', 'ttr passed', 'zombie passed') AND last.position = before_position AND NOT driven
    AND (last.wake IS NULL OR t < last.wake)
    AND (NOT shared OR event = 'ttr passed' AND t < last.wake - 500 OR event <> 'ttr passed' AND :nodes = 1)
    THEN IF(last.wake IS NULL,
            concat('"', event, '" of a job for which no time was set'),
            concat('"', event, '" ', last.wake - t, ' ms before its time'))
END
