"""The addresses of lakes: which ones are valid, where credentials come from, and that they stay secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import penstock
from penstock.lake.errors import BadPlace
from penstock.lake.place import Place, first_line, parse_place

from .stores import SECRET


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/data/lake", "/data/lake"),
        ("file:///data/lake", "/data/lake"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("gs://bucket/lake", "gs://bucket/lake"),
        ("gcs://bucket/lake", "gs://bucket/lake"),
        ("abfss://files@account.dfs.core.windows.net/lake", "abfss://files@account.dfs.core.windows.net/lake"),
        ("hdfs://name/lake", "hdfs://name/lake"),
    ],
)
def test_a_directory_or_a_folder_of_a_store_is_a_place(text: str, uri: str) -> None:
    assert parse_place(text).uri == uri


def test_a_relative_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_place("lake") == Place(str(tmp_path / "lake"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the address of the lake is empty"),
        ("  ", "the address of the lake is empty"),
        ("s3a:/bucket/x", "looks like an address with one slash; write 's3a://bucket/x'"),
        ("http://example.com/lake", "cannot be a lake; name a directory, or a folder of an object store"),
        ("ftp://example.com/lake", "cannot be a lake"),
        ("s3://", "names no bucket; write it like s3://bucket/folder"),
        ("s3:///lake", "names no bucket"),
    ],
)
def test_an_address_that_cannot_be_a_lake_is_refused(text: str, what: str) -> None:
    with pytest.raises(BadPlace, match=what) as error:
        parse_place(text)
    assert "\n" not in str(error.value)


def test_the_directory_of_a_queue_cannot_be_a_lake(tmp_path: Path) -> None:
    penstock.open(tmp_path / "queue").close()
    with pytest.raises(BadPlace, match="is the directory of a queue and cannot be a lake; name another directory"):
        parse_place(str(tmp_path / "queue"))


def test_settings_come_from_the_environment_of_the_store_and_options_are_stronger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from the environment")
    monkeypatch.setenv("AWS_REGION", "from the environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "another store's")
    options = parse_place("s3://bucket/lake", {"AWS_REGION": "an option"}).options
    assert (options["AWS_ACCESS_KEY_ID"], options["AWS_REGION"]) == ("from the environment", "an option")
    assert options["AWS_ALLOW_HTTP"] == "true"
    assert "GOOGLE_SERVICE_ACCOUNT" not in options
    assert parse_place("/data/lake").options == {}


def test_http_is_allowed_if_an_option_names_such_an_endpoint() -> None:
    options = parse_place("s3://bucket/lake", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}).options
    assert options["AWS_ALLOW_HTTP"] == "true"


def test_a_place_is_sent_to_tasks_with_its_credentials_but_never_shows_them() -> None:
    place = parse_place("s3://bucket/lake", {"AWS_SECRET_ACCESS_KEY": SECRET}).sub("bronze/events")
    assert pickle.loads(pickle.dumps(place)).options["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert SECRET not in f"{place} {place!r}"


def test_files_are_written_below_the_place(tmp_path: Path) -> None:
    place = parse_place(str(tmp_path)).sub("table")
    with place.writing("day=1/file") as out:
        out.write(b"content")
    assert (tmp_path / "table" / "day=1" / "file").read_bytes() == b"content"
    with place.files().open_input_file("day=1/file") as found:
        assert found.read() == b"content"
    with pytest.raises(BadPlace, match="File exists"), place.writing("day=1/file"):
        pass


def test_an_error_of_a_store_becomes_one_line() -> None:
    text = "Generic S3 error\n   \x1b[31m↳\x1b[0m Error performing GET\n    \x1b[31m↳\x1b[0m 500 Oh\n <?xml?><Error/>\n"
    assert first_line(OSError(text)) == "Generic S3 error: 500 Oh"
    assert first_line(OSError()) == "OSError"
