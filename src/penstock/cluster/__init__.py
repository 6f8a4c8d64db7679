"""The cluster: nodes that hold copies of each other's jobs. Pure: messages and moments in, messages out."""
