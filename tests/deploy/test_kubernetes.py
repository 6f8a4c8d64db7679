"""The manifests for Kubernetes are valid, and start the server with settings that exist."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from penstock.server.config.configuration import load
from tests.test_packaging import ROOT, run

FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [
    each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())
]


def the(kind: str, name: str = "penstock") -> dict[str, Any]:
    (found,) = [each for each in MANIFESTS if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def test_the_manifests_are_valid(tmp_path: Path) -> None:
    # As kustomize does: selectors and templates get the label.
    labels = KUSTOMIZATION["labels"][0]["pairs"]
    for each in MANIFESTS:
        for holder in (each["spec"].get("selector"), each["spec"].get("template", {}).setdefault("metadata", {})):
            if holder is not None:
                holder.update({"matchLabels" if "matchLabels" in holder else "labels": labels})
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(MANIFESTS))
    done = run(Path(sys.executable).parent / "kubernetes-validate", "--strict", path, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("passed for resource") == len(MANIFESTS), done.stdout


def test_every_manifest_is_part_of_the_kustomization() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml", "keda.yaml"}
    assert files == set(KUSTOMIZATION["resources"])


def test_the_pods_start_a_server_whose_ports_are_those_of_the_services(tmp_path: Path) -> None:
    (container,) = the("StatefulSet")["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(POD_IP)", "10.0.0.7") for word in container["args"]]
    assert words[0] == "serve"
    environment = {each["name"]: "secret" for each in container["env"] if each["name"] == "PENSTOCK_REQUIREPASS"}
    config = load(None, words[1:], environment, tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    bus = config.port + 10_000
    assert ports == {"resp": config.port, "iproto": config.iproto_port, "bus": bus, "http": config.http_port}
    served = {port["port"] for name in ("penstock", "penstock-nodes") for port in the("Service", name)["spec"]["ports"]}
    assert served == set(ports.values())
    assert container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_meeting_names_every_node() -> None:
    (container,) = the("Job", "penstock-meet")["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    others = script.partition("for node in ")[2].partition(";")[0].split()
    assert len(others) + 1 == the("StatefulSet")["spec"]["replicas"]
