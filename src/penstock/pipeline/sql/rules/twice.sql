-- Is an event in the history more than once?
CASE WHEN last.position = position THEN concat('position ', position, ' is in the history more than once') END
