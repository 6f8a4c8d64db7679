-- Was a job delivered after its ttl, or did it expire before its ttl?
CASE
  WHEN event IN ('taken', 'claimed') AND expiry <= t AND NOT (once AND actor IS NULL) AND NOT coalesce(driven, FALSE)
    THEN concat('"', event, '" ', t - expiry, ' ms after the end of the ttl')
  WHEN event = 'expired' AND (expiry IS NULL OR expiry > t)
    THEN IF(expiry IS NULL, '"expired" without a ttl', concat('"expired" ', expiry - t, ' ms before the end of the ttl'))
  WHEN event = 'expired' AND before = 'taken' AND ttl_while_taken = 'waits'
    THEN '"expired" of a taken job, in a tube where the ttl of taken jobs waits'
END
