"""Tells whether this installation is compiled to C or interpreted. Interpreted code is ten times slower."""

import importlib
from importlib.machinery import ExtensionFileLoader


def is_compiled() -> bool:
    """Return whether the engine is a compiled extension module."""
    spec = importlib.import_module("penstock.core.engine").__spec__
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
