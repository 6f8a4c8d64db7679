"""Errors of the lake and of the pipeline that fills it."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class PipelineError(PenstockError):
    """The pipeline refused a request or failed."""


class NoLake(PipelineError):
    """There is no lake at this place."""


class BadLake(PipelineError):
    """This version cannot read the lake, or the lake does not match the nodes."""


class BadPlace(PipelineError):
    """The address of a lake is not valid, or its store cannot be used."""


class LakeInUse(PipelineError):
    """Another process is writing to the lake."""
