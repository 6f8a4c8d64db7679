"""The pipeline: turns history into a lake of Parquet files. Bronze has events, silver has jobs, gold has statistics."""
