"""The place of a lake: a directory, or a folder of an object store.

Everything that differs between stores is in this module: which addresses are valid, where credentials come from, and
how files are written durably. A place is picklable, because Spark's tasks on other machines write files to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from penstock.journal.identity import NODE_FILE
from penstock.lake.errors import BadPlace

# The object stores that deltalake supports, by scheme. Nothing was tested with hdfs.
_STORES: Final = ("s3", "abfss", "gs", "hdfs")
_ALIASES: Final = {"s3a": "s3", "gcs": "gs", "abfs": "abfss"}

# Prefixes of environment variables that have credentials and settings of a store. They are also sent to Spark's tasks.
_VARIABLES: Final = {"s3": ("AWS_",), "abfss": ("AZURE_",), "gs": ("GOOGLE_",), "hdfs": ("HADOOP_", "HDFS_")}


@dataclass(frozen=True)
class Place:
    """A directory or a folder of an object store."""

    uri: str  # An absolute path, or a URI with the scheme of a store.
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)  # Settings of the store.

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def __str__(self) -> str:
        return self.uri

    def sub(self, path: str) -> Place:
        return Place(f"{self.uri}/{path}", self.options)

    def files(self) -> fs.FileSystem:
        """Return the files below this place, with paths that are relative to it."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        with store_errors(self.uri):
            return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))

    @property
    def is_delta_table(self) -> bool:
        """Whether the place itself is a Delta table. A lake has its tables in folders."""
        if self.is_local:
            return Path(self.uri, "_delta_log").exists()
        with store_errors(self.uri):
            return bool(self.files().get_file_info(fs.FileSelector("_delta_log", allow_not_found=True)))

    @contextmanager
    def writing(self, path: str) -> Iterator[Any]:
        """Open a new file for writing. After the block, the file is durable."""
        with store_errors(self.uri):
            if not self.is_local:
                with self.files().open_output_stream(path) as out:
                    yield out
                return
            full = Path(self.uri, path)
            _make_folder(full.parent)
            with open(full, "xb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            sync_folder(full.parent)


def parse_place(text: str, options: Mapping[str, str] | None = None) -> Place:
    """Return the place that a user has named: a directory or a URI. Environment variables complete the options."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.strip():
            raise BadPlace("the address of the lake is empty; name a directory, or a folder like s3://bucket/lake")
        if ":/" in text and not os.path.exists(text):
            raise BadPlace(f"{text!r} looks like an address with one slash; write {text.replace(':/', '://', 1)!r}")
        return _directory(Path(text).expanduser().absolute())
    if scheme == "file":
        return _directory(Path("/", rest))
    store = _ALIASES.get(scheme, scheme)
    if store not in _STORES:
        raise BadPlace(
            f"{text!r} cannot be a lake; name a directory, or a folder of an object store: s3://, abfss:// or gs://"
        )
    if not rest.partition("/")[0]:
        raise BadPlace(f"{text!r} names no bucket; write it like {store}://bucket/folder")
    found = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES[store])}
    found |= options or {}
    if store == "s3" and found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found.setdefault("AWS_ALLOW_HTTP", "true")
    return Place(f"{store}://{rest.rstrip('/')}", found)


def _directory(path: Path) -> Place:
    if path.exists() and not path.is_dir():
        raise BadPlace(f"{path} is a file and cannot be a lake; name a directory")
    if (path / NODE_FILE).exists():
        raise BadPlace(f"{path} is the directory of a queue and cannot be a lake; name another directory")
    return Place(str(path))


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turn errors of a store in the block into one sentence that names the lake."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise BadPlace(f"{uri}: {_cause(uri, error)}") from None


def _cause(uri: str, error: BaseException) -> str:
    """Return a clause that says what is wrong with a store and what to do, followed by the store's own words."""
    said, text = first_line(error), str(error)
    if "://" not in uri:
        return said
    words = text.lower()
    if "nosuchbucket" in words or "containernotfound" in words:
        bucket = uri.partition("://")[2].partition("/")[0].partition("@")[0]
        return f"there is no bucket {bucket}; create it first"
    last = said.rpartition(": ")[2]
    if any(each in words for each in ("403 ", "401 ", "lacked the necessary privileges", "credential")):
        return f"the store refuses access; check the credentials and what they allow ({last})"
    if any(each in words for each in ("503 ", "429 ", "slowdown")):
        return f"the store is overloaded or throttles requests; try again later ({last})"
    if "error sending request" in words or "connection" in words:
        return f"the store cannot be reached; check its address and the network ({last})"
    return said


def first_line(error: BaseException) -> str:
    """Return an error of a store as one line, without the colours and the tree that deltalake prints."""
    lines = [line.replace("\x1b[31m", "").replace("\x1b[0m", "").strip(" ↳\t") for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("<")]
    return ": ".join(said[:1] + said[-1:] if len(said) > 1 else said) or type(error).__name__


def sync_folder(folder: Path) -> None:
    """Make new entries of a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)
