-- Is an event older than its job, or than the state that it ended?
CASE
  WHEN since > t THEN concat('the state before "', event, '" began ', since - t, ' ms after the event')
  WHEN created > t THEN concat('"', event, '" is ', created - t, ' ms older than the job')
END
