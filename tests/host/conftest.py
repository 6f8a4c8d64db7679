"""Scenarios of hosts. A test that is a coroutine gets an event loop."""

from tests.conformance.conftest import pytest_pyfunc_call as pytest_pyfunc_call
