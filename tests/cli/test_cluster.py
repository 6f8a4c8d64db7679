"""`penstock cluster` refuses directories, because it needs a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock

from .transcript import run


@pytest.mark.parametrize("words", ["homes", "leave", "meet 127.0.0.1:9", "check", f"forget {'0' * 40} --yes"])
@pytest.mark.parametrize("how", ["--dir", "--context"])
def test_cluster_commands_refuse_a_directory(words: str, how: str, tmp_path: Path) -> None:
    env: dict[str, str | None] = {"XDG_CONFIG_HOME": str(tmp_path), "PENSTOCK_URL": None, "PENSTOCK_CONTEXT": None}
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("a")
    assert run(["context", "add", "here", f"{tmp_path}/queue"], b"", env)[2] == 0
    where = f"{tmp_path}/queue" if how == "--dir" else "here"
    _, said, code = run(["cluster", *words.split(), how, where], b"", env)
    assert code == 2 and said == (
        f"penstock: {tmp_path}/queue is a directory, but this command needs a server; name one with --url, "
        f"or start one with `penstock serve --dir {tmp_path}/queue`\n"
    )
