"""Runs the tests that are coroutines."""

from tests.conformance.conftest import pytest_pyfunc_call as pytest_pyfunc_call
