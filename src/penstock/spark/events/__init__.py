"""The Spark source `penstock_events`: the journal as a table or a stream."""
