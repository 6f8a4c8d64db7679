"""The blocking modules are equal to what `make generate` writes from the asyncio modules."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "generate_sync.py"
_spec = importlib.util.spec_from_file_location("generate_sync", SCRIPT)
assert _spec is not None and _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


def test_no_generated_module_is_out_of_date() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("target", generate.SOURCES)
def test_a_method_that_is_removed_from_the_source_makes_the_check_fail(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "src" / "penstock"
    for name, source in generate.SOURCES.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        for each in (name, source):
            (package / each).write_text((ROOT / "src" / "penstock" / each).read_text())
    (package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 0
    path = package / generate.SOURCES[target]
    method = re.compile(r"\n    async def snatch\(.*?\n(?=\n    (?:@|async def))", re.S)
    without, count = method.subn("", path.read_text())
    assert count == 1
    path.write_text(without)
    assert generate.main(["--check"]) == 1
    assert f"out of date: {target}" in capsys.readouterr().err
