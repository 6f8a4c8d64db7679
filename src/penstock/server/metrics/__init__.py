"""/metrics: the metrics of a node, in the text format of Prometheus."""
