"""OpenTelemetry: spans for puts, takes, the processing of jobs and their settlement, in one trace across processes.

    import penstock.telemetry

    penstock.telemetry.instrument()     # Once, at the start of each process.

A put adds the trace context to the headers of the job. The consumer continues the trace with it. Without a call of
`instrument`, nothing is changed, so queues have no extra cost. The package `opentelemetry-api` is imported by
`instrument`, and not before.
"""

from __future__ import annotations

from penstock.telemetry.instrumentation import instrument, process, uninstrument

__all__ = ["instrument", "process", "uninstrument"]
