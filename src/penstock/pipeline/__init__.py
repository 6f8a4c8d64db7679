"""The pipeline: history as a lake of Parquet. Bronze is the events, silver the jobs, gold the answers."""
