-- By how much did the number of jobs in each state grow or shrink, in each tube and minute?
--
-- A job that the lake meets in the middle of its life was there before: it comes in in the state it was found in. Of the
-- nodes that have a job, the one counts that is to hand it out.
SELECT
  date, tube, minute,
  count_if(after = 'ready') - count_if(before = 'ready' AND NOT first) AS ready,
  count_if(after = 'taken') - count_if(before = 'taken' AND NOT first) AS taken,
  count_if(after = 'delayed' AND NOT aside) - count_if(before = 'delayed' AND NOT first AND NOT was_aside) AS delayed,
  count_if(after = 'buried') - count_if(before = 'buried' AND NOT first) AS buried,
  count_if(after IN ('done', 'zombie')) - count_if(before IN ('done', 'zombie') AND NOT first) AS kept
FROM steps
WHERE NOT carried AND (before <> after OR first OR aside <> was_aside)
GROUP BY date, tube, minute
