"""`import penstock`: every public name exists and is typed in the module that it is imported from."""

import ast
from pathlib import Path

import pytest

import penstock
from penstock.core import errors

SOURCE = ast.parse((Path(__file__).parent.parent / "src" / "penstock" / "__init__.py").read_text())


@pytest.mark.parametrize("name", penstock.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(penstock, name) is not None
    assert name in dir(penstock)


def test_what_a_type_checker_sees_is_what_is_imported() -> None:
    (block,) = [node for node in SOURCE.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    typed = {
        alias.name: str(node.module).removeprefix("penstock.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == penstock._HOMES
    assert sorted([*typed, "__version__"]) == sorted(penstock.__all__)


def test_every_error_that_can_reach_a_user_of_python_is_public() -> None:
    classes = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert classes <= set(penstock.__all__)
    assert {"BadDriver", "Change", "Event", "JobOutcome", "NewJob"} <= set(penstock.__all__)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        _ = penstock.opne  # type: ignore[attr-defined]
