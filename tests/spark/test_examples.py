"""The examples run with a server that has default settings."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.versions import AVAILABLE_NOW

from .conftest import url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.versions import Feature
    from tests.server.serving import Server

ROOT = Path(__file__).parent.parent.parent


def test_the_example_for_data_engineers_prints_its_results(
    spark: SparkSession,
    start: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    needs_feature: Callable[[Feature], None],
) -> None:
    needs_feature(AVAILABLE_NOW)
    monkeypatch.setenv("PENSTOCK_URL", url_of(start("--appendfsync", "everysec")))
    monkeypatch.setattr(sys, "argv", ["data_engineer.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "data_engineer.py"))
    shown = capsys.readouterr().out
    for words in ("300 orders are ready", "1 order is buried", "298 orders are written", "no such address"):
        assert words in shown
