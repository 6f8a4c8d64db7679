"""The recorded figures: which build they are valid for, and whether new ones agree with them."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sysconfig
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

RECORDS = Path(__file__).with_name("figures.json")

# A larger change of one command is an error, in both directions: after an improvement the record has to be updated,
# because otherwise a later loss of the same size would stay hidden.
TOLERANCE = 0.03

# Packages that are part of the cost. A new release of them is compared with the old one, so that its cost is noticed.
_PACKAGES = ("mypy", "uvloop")


@dataclass(frozen=True)
class Record:
    """The instructions per command on one build."""

    build: dict[str, str]  # The Python, compiler, libc and processor architecture. Others have other figures.
    packages: dict[str, str]  # Versions of packages.
    instructions: dict[str, int]


def compiler() -> list[str]:
    """Return the command that starts the C compiler, as for the compiled package."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def this_build() -> dict[str, str]:
    """Return the facts about this machine on which the figures depend."""
    options = re.findall(r"--(?:enable|with)-[a-z-]+", sysconfig.get_config_var("CONFIG_ARGS") or "")
    words = [*compiler(), "-dumpfullversion", "-dumpversion"]
    compiled_by = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}",
        "python options": " ".join(sorted(options)),
        "compiler": f"{Path(compiler()[0]).name} {compiled_by}",
        "libc": " ".join(platform.libc_ver()),
        "architecture": platform.machine(),
    }


def this_record(instructions: dict[str, float]) -> Record:
    """Return a record of figures that were measured now."""
    packages = {package: version(package) for package in _PACKAGES}
    return Record(this_build(), packages, {name: round(figure) for name, figure in instructions.items()})


def read(file: Path) -> list[Record]:
    """Return the records of a file, or none if it does not exist."""
    return [Record(**each) for each in json.loads(file.read_text())] if file.exists() else []


def find(records: list[Record], build: dict[str, str]) -> Record | None:
    """Return the record of a build, or None."""
    return next((record for record in records if record.build == build), None)


def update(file: Path, new: Record) -> None:
    """Write a record to a file. It replaces the record of the same build."""
    records = [record for record in read(file) if record.build != new.build]
    file.write_text(json.dumps([asdict(record) for record in [*records, new]], indent=2) + "\n")


def why_not_comparable(records: list[Record], build: dict[str, str]) -> str:
    """Return why there is no record to compare with on this build."""
    differences = [
        ", ".join(
            f"{fact} {value!r} instead of {record.build.get(fact)!r}"
            for fact, value in build.items()
            if value != record.build.get(fact)
        )
        for record in records
    ]
    return f"no instructions are recorded for this build: it has {' or '.join(differences) or 'no record'}"


def deviations(recorded: Record, now: Record) -> list[str]:
    """Return a sentence for each command that changed by more than the tolerance or is missing in one record."""
    found = []
    for name in {**recorded.instructions, **now.instructions}:
        before, after = recorded.instructions.get(name), now.instructions.get(name)
        if before is None or after is None:
            found.append(f"{name}: recorded {before}, measured {after}")
        elif abs(after / before - 1) > TOLERANCE:
            found.append(f"{name}: {before:,} instructions became {after:,} ({after / before - 1:+.1%})")
    if found:
        found += [
            f"{package} {recorded.packages.get(package)} became {number}"
            for package, number in now.packages.items()
            if number != recorded.packages.get(package)
        ]
    return found
