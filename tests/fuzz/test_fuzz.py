"""The inputs that fuzzing found in the past pass, and some seconds of fuzzing find no new failure."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import in_ci
from tests.fuzz.mutation import CORPUS, Fuzzer, Target
from tests.fuzz.targets import TARGETS
from tests.wire.client_input import read

SECONDS = 1.5
PATIENCE_S = 20.0


@pytest.mark.parametrize("name", TARGETS)
def test_the_invariant_holds(name: str) -> None:
    fuzzer = Fuzzer(name, TARGETS[name], 1 if in_ci() else random.randrange(1 << 32))
    fuzzer.replay()
    fuzzer.run(SECONDS)
    assert fuzzer.tried > len(fuzzer.inputs) > 10


def test_every_corpus_has_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()


def test_a_fuzzer_finds_a_violated_invariant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The invariant is wrong for the parser, but only an input with a valid count and length violates it."""
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "nothing").write_bytes(b"PING")
    monkeypatch.setattr("tests.fuzz.mutation.CORPUS", tmp_path)

    def wrong(data: bytes) -> None:
        assert len(read([data])[0]) < 2

    target = Target("no two commands", wrong, lambda dice: b"", [b"*1\r\n", b"$4\r\n", b"\r\n"])
    fuzzer = Fuzzer("wrong", target, seed=1)
    with pytest.raises(AssertionError):
        fuzzer.run(PATIENCE_S)
    [found] = [path for path in (tmp_path / "wrong").iterdir() if path.name.startswith("found-")]
    assert len(read([found.read_bytes()])[0]) >= 2
    assert str(found) in capsys.readouterr().err
