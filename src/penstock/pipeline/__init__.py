"""The pipeline: history as a lake of Parquet, in three layers. Bronze is the events, silver the jobs, gold the answers."""
