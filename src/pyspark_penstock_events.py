"""Here Spark finds `format("penstock_events")` by its name: see penstock/spark/events.py."""

from penstock.spark.events import EventsSource as DefaultSource

__all__ = ["DefaultSource"]
