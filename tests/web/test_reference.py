"""The examples of docs/reference/http.md run as they are written."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest

from tests.server.serving import Server

from .http_api import serving

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "http.md"


def test_the_examples_with_curl_work(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, needs: Callable[[object, str], None]
) -> None:
    needs(which("curl"), "curl is not installed")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if "curl" in line]
    assert len(lines) >= 8
    node = Server(tmp_path_factory.mktemp("reference"))
    with serving(node.port) as api:
        for line in lines:
            here = line.replace("localhost:7780", f"127.0.0.1:{api.port}").replace("timeout 2 ", "timeout 0.5 ")
            done = subprocess.run(["bash", "-c", here], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and '"error"' not in done.stdout, (line, done.stdout, done.stderr)
    node.stop()
