"""How this installation was built: compiled to C, or interpreted. The same source either way, ten times apart."""

import importlib
from importlib.machinery import ExtensionFileLoader


def is_compiled() -> bool:
    """Whether the engine was loaded from an extension module."""
    spec = importlib.import_module("penstock.core.engine").__spec__
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)
