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

# A part of the output of each example in examples/.
OUTPUT = {
    "data_engineer.py": ("300 orders are ready", "1 order is buried", "298 orders are written", "no such address"),
    "spark_batch.py": ("|     90|", "|put staged|", "acked|    10|"),
    "spark_stream.py": ("|     0|   33|", "|     2|   33|", "buried: [b'not JSON']"),
}
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", OUTPUT)
def test_an_example_prints_its_results(
    name: str,
    spark: SparkSession,
    start: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    needs_feature: Callable[[Feature], None],
) -> None:
    needs_feature(AVAILABLE_NOW)
    monkeypatch.setenv("PENSTOCK_URL", url_of(start("--appendfsync", "always")))
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / name))
    shown = capsys.readouterr().out
    for words in OUTPUT[name]:
        assert words in shown
