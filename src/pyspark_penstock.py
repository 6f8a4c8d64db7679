"""Spark imports this module for `format("penstock")`. The source is in penstock/spark/jobs/source.py."""

from penstock.spark.jobs.source import JobsSource as DefaultSource

__all__ = ["DefaultSource"]
