"""Servers for tests of the clients: one that they share, and one's own where its end matters."""

from tests.conformance.conftest import pytest_pyfunc_call as pytest_pyfunc_call
from tests.server.conftest import certificate as certificate
from tests.server.conftest import server as server
from tests.server.conftest import start as start
