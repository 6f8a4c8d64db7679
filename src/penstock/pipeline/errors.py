"""What the pipeline refuses, in sentences."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class PipelineError(PenstockError):
    """The pipeline cannot go on."""


class NoLake(PipelineError):
    """There is no lake where one was to be read."""


class BadLake(PipelineError):
    """What is there is no lake that this version can read."""


class LakeInUse(PipelineError):
    """Another process writes the lake."""
