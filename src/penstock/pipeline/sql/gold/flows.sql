-- By how much did the number of jobs in each state change, in each tube and minute?
--
-- If the put of a job is not in the lake, its first event adds the job to its new state and does not subtract it from the
-- earlier one. If several nodes have a job, only the node that delivers it counts.
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
