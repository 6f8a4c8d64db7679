"""Here Spark finds `format("penstock")` by its name: see penstock/spark/jobs.py."""

from penstock.spark.jobs import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
