"""Here Spark finds `format("penstock")` by its name: see penstock/spark/jobs/source.py."""

from penstock.spark.jobs.source import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
