-- Which policy did the tube of each event have?
SELECT narrow.*, owner, bury_by, ack_cancels, ttl_while_taken, driven, shared
FROM narrow LEFT JOIN lives ON narrow.n = lives.n AND narrow.tube_number = lives.tube_number
  AND position >= start AND position < end
