"""The demo of the cluster shows what it says: a node dies, and nothing is lost."""

from __future__ import annotations

import pytest

from penstock.cli import cluster_demo


def test_the_demo_loses_a_node_and_no_job(capfd: pytest.CaptureFixture[str]) -> None:
    assert cluster_demo.run(3) == 0
    told = capfd.readouterr().out
    assert "Everybody reaches everybody" in told and "Nothing was lost." in told
