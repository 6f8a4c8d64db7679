"""`penstock cluster demo` loses a node but no job."""

from __future__ import annotations

import pytest
import typer

from penstock.cli.demos import cluster_demo
from tests.ports import free_port


def test_missing_ports_and_timeouts_are_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(typer.Exit):
        cluster_demo.free_ports(1_000)
    assert "of the ports from 7711 to 7910 are free, but 1000 are needed" in capfd.readouterr().err
    monkeypatch.setattr(cluster_demo, "PATIENCE_S", 0.0)
    with pytest.raises(typer.Exit):
        cluster_demo.wait_for(lambda: False, "nobody answers")
    assert "nobody answers within 0 s" in capfd.readouterr().err


def test_the_demo_loses_a_node_but_no_job(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Reserved ports, and a timeout that tolerates a node that is suspended for a while.
    monkeypatch.setattr(cluster_demo, "_PORTS", [free_port() for _ in range(3)])
    monkeypatch.setattr(cluster_demo, "_NODE_TIMEOUT_MS", 10_000)
    assert cluster_demo.run(3) == 0
    told = capfd.readouterr().out
    assert "All nodes reach each other" in told and "No job was lost." in told
