"""The sections of a report. Each module answers one question."""
