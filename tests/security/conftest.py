"""Fixtures that several attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.renamed_commands import ClosedNode, renamed_nodes


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClosedNode]]:
    """Two nodes of a cluster that have different names for commands, with a user who may use `mail.*`."""
    with renamed_nodes(tmp_path_factory.mktemp("two")) as nodes:
        yield nodes
