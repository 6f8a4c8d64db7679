"""Object stores for the tests of the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from .faulty_proxy import FaultyStore, faulty_store
from .stores import S3, s3_server


@pytest.fixture(scope="session")
def s3(needs: Callable[[object, str], None]) -> Iterator[S3]:
    """A store that works."""
    needs(find_spec("moto"), "moto is not installed")
    with s3_server() as store:
        yield store


@pytest.fixture(scope="session")
def faulty(s3: S3) -> Iterator[FaultyStore]:
    """The store of the fixture s3, behind a proxy that can inject faults."""
    with faulty_store(s3) as store:
        yield store
