"""How this installation was built: compiled to C, or interpreted, which is ten times slower. The source is the same."""

import importlib
from importlib.machinery import ExtensionFileLoader


def is_compiled() -> bool:
    """Return whether the engine was loaded from an extension module."""
    spec = importlib.import_module("penstock.core.engine").__spec__
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
