"""The files for contributors and workflows are valid, according to the tools that read them."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_packaging import ROOT, run

Needs = Callable[[object, str], None]

GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "ISSUE_TEMPLATE" / "idea.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_of_github_follow_their_schemas(schema: str, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *SCHEMAS[schema])
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflows_are_safe(needs: Needs) -> None:
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent))
    needs(zizmor, "zizmor is not installed")
    done = run(zizmor, "--offline", "--no-progress", "--min-severity", "medium", GITHUB, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_and_script_of_a_workflow_exists() -> None:
    targets = (ROOT / "Makefile").read_text()
    for workflow in WORKFLOWS:
        for line in workflow.read_text().splitlines():
            command = line.strip().removeprefix("- ").removeprefix("run:").split()
            if command[:1] == ["make"]:
                assert all(f"\n{target}: " in targets for target in command[1:]), line
            elif command and command[0] == ".ci/run":
                assert (ROOT / ".ci" / "run").exists()


def test_the_hooks_for_git_are_valid_and_run_commands_that_exist(tmp_path: Path) -> None:
    hooks = ROOT / ".pre-commit-config.yaml"
    done = run(sys.executable, "-m", "pre_commit", "validate-config", hooks, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    named = {
        word for line in hooks.read_text().splitlines() if "entry:" in line for word in line.split() if "/" in word
    }
    assert len(named) > 3 and all((ROOT / name).exists() for name in named - {".venv/bin/python"})


def test_the_package_names_its_pages_and_its_pythons() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["urls"]) == {"Source", "Documentation", "Changelog", "Issues"}
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    wheels = {name.removeprefix("cp3").removesuffix("-*") for name in built}
    versions = {each.rpartition(" :: 3.")[2] for each in project["classifiers"] if " :: 3." in each}
    assert versions == wheels
