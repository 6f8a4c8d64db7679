"""Here Spark finds `format("penstock_events")` by its name: see penstock/spark/events/source.py."""

from penstock.spark.events.source import EventsSource as DefaultSource

__all__ = ["DefaultSource"]
