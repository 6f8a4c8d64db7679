"""What every command prints, for people and for programs: see transcript.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from .transcript import Session, replay

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_a_transcript_is_as_it_was(path: Path, session: Session, pytestconfig: pytest.Config) -> None:
    text = path.read_text()
    now = replay(text, session.type)
    if pytestconfig.getoption("--update"):
        path.write_text(now)
    else:
        assert now == text
