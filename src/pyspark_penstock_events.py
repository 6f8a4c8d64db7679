"""Spark imports this module for `format("penstock_events")`. The source is in penstock/spark/events/source.py."""

from penstock.spark.events.source import EventsSource as DefaultSource

__all__ = ["DefaultSource"]
