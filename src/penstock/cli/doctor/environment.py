"""Examines the installation: Python, the build of the engine, and the packages of each extra."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from penstock._build import is_compiled
from penstock._extras import extras
from penstock._version import __version__
from penstock.cli.doctor.finding import OK, PROBLEM, WARNING, Finding


def examine_environment() -> Iterator[Finding]:
    """Yield findings about Penstock, Python and the installed extras."""
    yield Finding("environment", "penstock", __version__)
    yield _build()
    yield Finding("environment", "python", f"{platform.python_implementation()} {platform.python_version()}")
    yield _system()
    for extra, modules in extras().items():
        yield _extra(extra, modules)
    if find_spec("pyspark") is not None:
        yield _java()


def _build() -> Finding:
    if is_compiled():
        return Finding("environment", "engine", "compiled")
    return Finding(
        "environment",
        "engine",
        "interpreted",
        WARNING,
        "It is about ten times slower than the compiled one. Install a C compiler and Python's headers, and then "
        "Penstock again: pip install --force-reinstall --no-binary penstock-queue penstock-queue",
    )


def _system() -> Finding:
    value = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() in ("Linux", "Darwin"):
        return Finding("environment", "system", value)
    advice = "Only memory queues and clients work on this system. Queues in a directory need Linux or macOS."
    return Finding("environment", "system", value, PROBLEM, advice)


def _extra(extra: str, modules: tuple[str, ...]) -> Finding:
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return Finding("environment", f"extra [{extra}]", ", ".join(filter(None, map(_with_version, modules))))
    # A missing extra is a choice, but half of one is a broken installation.
    level = OK if len(missing) == len(modules) else WARNING
    advice = "" if level == OK else f"Install the missing packages: pip install 'penstock-queue[{extra}]'"
    value = "not installed" if level == OK else f"incomplete: {', '.join(missing)} missing"
    return Finding("environment", f"extra [{extra}]", value, level, advice)


def _with_version(module: str) -> str:
    name = {"grpc": "grpcio"}.get(module, module.replace("_", "-"))
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


def _java() -> Finding:
    from penstock.spark.errors import SourceError
    from penstock.spark.java import java_home

    try:
        return Finding("environment", "java for Spark", java_home(quiet=True) or "the java on the path")
    except SourceError as error:
        return Finding("environment", "java for Spark", "none", WARNING, str(error))
