"""What every command prints, for people and for programs, on a directory and on a server: see transcript.py.

A transcript whose name ends with the kind of a place is of such a place only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .transcript import Session, replay

GOLDEN = Path(__file__).parent / "golden"
KINDS = ("directory", "server")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_a_transcript_is_as_it_was(
    path: Path, kind: str, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> None:
    only = path.stem.rpartition("-")[2]
    if only in KINDS and only != kind:
        pytest.skip(f"of a {only} only")
    session: Session = request.getfixturevalue("session")
    text = path.read_text()
    now = replay(text, session.type)
    if pytestconfig.getoption("--update"):
        path.write_text(now)
    else:
        assert now == text
