"""The files for Prometheus, Grafana and KEDA: a real Prometheus scrapes three nodes, and every query has data."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.server.clustering import Node
from tests.server.serving import PATIENCE_S, pairs, wait_for

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
TARGETS = '["127.0.0.1:7712", "127.0.0.1:7722", "127.0.0.1:7732"]'
# The variables of the dashboard, as Grafana replaces them if everything is selected.
VARIABLES = {"$job": "penstock", "$instance": ".*", "$tube": ".*", "$__rate_interval": "1m"}
COMPARISON = re.compile(r"\s*(==|!=|>=|<=|<|>)\s*\d[\d.]*(e\+?\d+)?")


class Prometheus:
    """A Prometheus that scrapes nodes."""

    def __init__(self, home: Path, nodes: list[int]) -> None:
        self._port = free_port()
        text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        assert TARGETS in text and text.count("_interval: 15s") == 2
        text = text.replace(TARGETS, json.dumps([f"127.0.0.1:{port}" for port in nodes]))
        (home / "prometheus.yml").write_text(text.replace("_interval: 15s", "_interval: 1s"))
        shutil.copy(DEPLOY / "prometheus" / "alerts.yml", home)
        self.log = (home / "log").open("w+")
        words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        words += [f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"]
        self._process = subprocess.Popen(["prometheus", *words], cwd=home, stdout=self.log, stderr=subprocess.STDOUT)

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a reply of the HTTP API, or None if Prometheus is not ready."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{url}: {error.read().decode()}"
        except urllib.error.URLError:
            assert self._process.poll() is None, Path(self.log.name).read_text()
        return None

    def has_data(self, query: str) -> bool:
        data = self.get("query", query=query)
        return data is not None and bool(data["result"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self.log.close()


@contextlib.contextmanager
def three_nodes(home: Path) -> Iterator[tuple[list[Node], list[int]]]:
    """Return the nodes of a cluster and their HTTP ports."""
    ports = [free_port() for _ in range(3)]
    with ThreadPoolExecutor(3) as starters:
        made = starters.map(lambda port: Node(home / f"n{port}", "--http-port", str(port)), ports)
        nodes = list(made)
    try:
        for node in nodes[1:]:
            nodes[0].meet(node, node.bus_port)
        wait_for(lambda: all(node.reaches() == node.links() == 2 for node in nodes))
        yield nodes, ports
    finally:
        for node in nodes:
            node.stop()


def work(node: Node, stopped: threading.Event) -> None:
    """Put, take, ack, nack and release jobs until `stopped` is set."""
    with contextlib.closing(node.connect()) as wire:
        wire.call("TUBE", "CREATE", "mail", "RETRY", "2x then bury")
        while not stopped.wait(0.02):
            wire.call("ADDJOB", "copied", "x", 0)
            for command in ("ACK", "RELEASE", "BURY"):
                wire.call("PUT", "mail", "x")
                for job in wire.call("TAKE", "mail"):
                    assert wire.call(command, pairs(job)[b"id"]) in (1, b"OK")


def queries() -> dict[str, str]:
    """Return the queries of the dashboard and of KEDA by a name for each, with all variables replaced."""
    found = {}
    dashboard = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            values = re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])
            assert values is not None
            found[f"variable {variable['name']}"] = values[1]
    for number, query in enumerate(re.findall(r" query: (.*)", (DEPLOY / "kubernetes" / "keda.yaml").read_text())):
        found[f"KEDA {number}"] = query
    for variable, value in VARIABLES.items():
        found = {name: query.replace(variable, value) for name, query in found.items()}
    return found


def alert_queries(prometheus: Prometheus) -> dict[str, str]:
    """Return the parts of each alert without comparisons, by a name for each."""
    rules = wait_for(lambda: prometheus.get("rules"))
    found = {}
    for group in rules["groups"]:
        for rule in group["rules"]:
            for number, part in enumerate(re.split(r"\s+unless on \(\w+\)\s+", rule["query"])):
                found[f"{rule['name']} {number}"] = COMPARISON.sub("", part)
    return found


@pytest.mark.usefixtures("prometheus_is_installed")
def test_every_query_of_the_dashboard_and_of_the_alerts_has_data_under_load(tmp_path: Path) -> None:
    stopped = threading.Event()
    with three_nodes(tmp_path) as (nodes, ports), ThreadPoolExecutor(3) as workers:
        prometheus = Prometheus(tmp_path, ports)
        working = [workers.submit(work, node, stopped) for node in nodes]
        try:
            missing = queries() | alert_queries(prometheus)
            assert len(missing) > 80 and not any("$" in query for query in missing.values())

            def all_have_data() -> bool:
                for name, query in list(missing.items()):
                    if prometheus.has_data(query):
                        del missing[name]
                return not missing or any(each.done() for each in working)

            with contextlib.suppress(AssertionError):
                wait_for(all_have_data)
            assert not [each.exception() for each in working if each.done()]
            assert not missing, "these queries have no data"
            rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
            assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
            assert [target["health"] for target in prometheus.get("targets")["activeTargets"]] == ["up"] * 3
        finally:
            stopped.set()
            prometheus.stop()
        for each in working:
            each.result()


@pytest.mark.usefixtures("prometheus_is_installed")
def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for kind, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        words = ["promtool", "check", kind, str(DEPLOY / "prometheus" / name)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def prometheus_is_installed(needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("prometheus"), "prometheus is not installed (Debian: apt-get install prometheus)")
