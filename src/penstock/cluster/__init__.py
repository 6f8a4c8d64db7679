"""The cluster protocol: nodes that hold copies of each other's jobs. Pure: it maps messages and times to messages."""
