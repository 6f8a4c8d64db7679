"""`penstock.open` with a URL, and directories in which it refuses to create a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import async_queue, queue
from tests.server.serving import Server


def contents(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() if each.is_file() else b"" for each in path.rglob("*")}


def test_open_with_a_url_connects_to_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path, "--dir", "data")
    url = f"penstock://127.0.0.1:{server.port}"
    try:
        with penstock.open(url, grace=3) as here:
            assert type(here) is queue.Queue
            here.tube("emails").put("x")

        async def main() -> None:
            async with penstock.open_async(url) as there:
                assert type(there) is async_queue.AsyncQueue
                job = await (await there.tube("emails")).take()
                assert job is not None and job.body == "x"

        asyncio.run(main())
    finally:
        server.stop()
    assert not Path("penstock:").exists()


@pytest.mark.parametrize("open", [penstock.open, penstock.open_async])
def test_another_scheme_is_refused_and_no_directory_is_made(
    open: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(penstock.BadUrl, match="begins with redis://"):
        open("redis://127.0.0.1:6379")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "options", [{"fsync": "never"}, {"max_body": 1}, {"memory_limit": 1 << 20}, {"history": 1}, {"progress": print}]
)
def test_options_of_a_directory_are_refused_with_a_url(options: dict[str, Any]) -> None:
    for open in (penstock.open, penstock.open_async):
        with pytest.raises(penstock.Unsupported, match=f"{next(iter(options))} is a setting of the server"):
            open("penstock://127.0.0.1:1", **options)


def test_a_misspelt_option_names_the_closest_one() -> None:
    with pytest.raises(TypeError, match=r"^open\(\) got an unexpected keyword argument 'fsnyc'; did you mean 'fsync'"):
        penstock.open(":memory:", fsnyc="never")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^open_async\(\) .* did you mean 'grace'"):
        penstock.open_async(":memory:", grcae=1)  # type: ignore[call-arg]


def test_a_directory_with_other_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "thesis.tex").write_text("important")
    before = contents(tmp_path)
    with pytest.raises(
        penstock.NotAQueue, match=r"contains no queue but other files, such as src; choose a new"
    ) as refused:
        penstock.open(tmp_path)
    assert refused.value.code == "NOTAQUEUE" and contents(tmp_path) == before


def test_a_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    file.write_bytes(b"important")
    with pytest.raises(penstock.NotAQueue, match="is a file, but a queue is a directory"):
        penstock.open(file)
    assert file.read_bytes() == b"important"


def test_a_new_or_empty_directory_and_one_with_a_queue_are_opened(tmp_path: Path) -> None:
    (tmp_path / "mounted" / "lost+found").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "crashed").mkdir()
    (tmp_path / "crashed" / "lock").touch()
    for name in ("new", "empty", "mounted", "crashed"):
        with penstock.open(tmp_path / name) as made:
            made.tube("emails").put("x")
        (tmp_path / name / "notes.txt").write_text("files beside a queue do no harm")
        with penstock.open(tmp_path / name) as again:
            assert again.tube("emails").stats()["ready"] == 1


@pytest.mark.parametrize("address", ["127.0.0.1:7711", "queue.example.org:7711", "[::1]:7711", "localhost:7711"])
def test_an_address_without_a_scheme_is_not_opened_as_a_directory(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for open_it in (penstock.open, penstock.open_async):
        with pytest.raises(penstock.BadUrl, match=r"open penstock://.*, or \./"):
            open_it(address)
    assert list(tmp_path.iterdir()) == []
    penstock.open(f"./{address}").close()
    # An existing directory is preferred.
    penstock.open(address).close()


def test_opening_a_queue_twice_in_one_process_is_refused_with_that_reason(tmp_path: Path) -> None:
    with penstock.open(tmp_path), pytest.raises(penstock.InUse, match="is already open in this process"):
        penstock.open(tmp_path)
