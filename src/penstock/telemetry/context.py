"""The trace context of a job: W3C's `traceparent` and `tracestate`, in the headers of the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Always W3C's format, and not the global propagator, so that programs with different settings understand each other.
_W3C: Final = TraceContextTextMapPropagator()
_TRACEPARENT: Final = "traceparent"


def is_traced() -> bool:
    """Return whether there is a current span."""
    # The context is usually empty, and this check takes a third of the time of the other.
    return bool(get_current()) and trace.get_current_span().get_span_context().is_valid


def with_context(headers: Mapping[str, str | bytes] | None) -> dict[str, str | bytes]:
    """Return headers with the context of the current span. Headers that have a context already keep it."""
    merged = dict(headers or {})
    if _TRACEPARENT not in merged:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        merged.update(carrier)
    return merged


def context_of(headers: Mapping[str, str]) -> Context | None:
    """Return the trace context in the headers of a job, or None if it is missing or malformed."""
    if _TRACEPARENT not in headers:
        return None
    context = _W3C.extract(headers, Context())
    return context if _span_context(context).is_valid else None


def links_to(contexts: list[Context | None]) -> list[Link]:
    """Return a link to the span of each context."""
    return [Link(_span_context(context)) for context in contexts if context is not None]


def _span_context(context: Context) -> SpanContext:
    return trace.get_current_span(context).get_span_context()
