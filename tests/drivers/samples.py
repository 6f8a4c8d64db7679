"""The drivers that these tests use: the one of docs/reference/tubes/drivers.md, unchanged, and one with five fields."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.drivers import unregister_driver
from tests.drivers.five_fields import FiveFields

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "tubes" / "drivers.md"


def documented_code() -> str:
    """Return the source of the LIFO driver from the documentation: its classes, without the examples that use it."""
    code = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert code is not None
    return code[1].partition("penstock.register_driver")[0]


def documented_driver() -> Any:
    """Return the LIFO driver of the documentation."""
    namespace: dict[str, Any] = {}
    exec(documented_code(), namespace)
    return namespace["Lifo"]


@contextmanager
def registered() -> Iterator[None]:
    """Register both drivers in this process."""
    penstock.register_driver("stack", documented_driver())
    penstock.register_driver("five", FiveFields)
    try:
        yield
    finally:
        unregister_driver("stack")
        unregister_driver("five")


def write_modules(home: Path) -> Path:
    """Write both drivers as modules, and a configuration file that names them."""
    (home / "documented_lifo.py").write_text(documented_code())
    shutil.copy(Path(__file__).parent / "five_fields.py", home / "five_fields.py")
    file = home / "penstock.toml"
    file.write_text('[drivers]\nstack = "documented_lifo:Lifo"\nfive = "five_fields:FiveFields"\n')
    return file
