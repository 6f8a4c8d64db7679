"""Data of live views: rates and durations of the tubes, alerts, and the stream of the journal."""
