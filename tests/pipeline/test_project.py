"""The project that `penstock pipeline init` writes. Its files are only compiled here, except for the tables."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.lake.errors import PipelineError
from penstock.pipeline.project import write_project
from penstock.pipeline.user_tables import load_tables


def test_every_file_of_a_project_can_be_parsed(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(find_spec("yaml"), "PyYAML is not installed")
    yaml = import_module("yaml")
    written = write_project(tmp_path / "project", "s3://bucket/lake")
    assert {path.suffix for path in written} == {".md", ".sql", ".py", ".yml"}
    for path in written:
        if path.suffix == ".py":
            ast.parse(path.read_text())
        if path.suffix == ".yml":
            assert yaml.safe_load(path.read_text())
    assert [each.table.name for each in load_tables(tmp_path / "project" / "tables")] == ["puts_by_hour", "slow_waits"]


def test_a_project_does_not_overwrite_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(PipelineError, match="is not an empty folder; name a new one"):
        write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
