"""Servers for tests of the clients: a shared one, and one per test where the test stops it."""

from collections.abc import Iterator

import pytest

from tests.client.proxy import Proxy, proxy_to
from tests.conformance.conftest import pytest_pyfunc_call as pytest_pyfunc_call
from tests.server.conftest import certificate as certificate
from tests.server.conftest import server as server
from tests.server.conftest import start as start
from tests.server.serving import Server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """Return a proxy of the shared server that can cut connections."""
    with proxy_to(server.port) as proxy:
        yield proxy


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a tube that no other test uses."""
    return str(request.node.nodeid)
