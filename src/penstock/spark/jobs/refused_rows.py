"""Saves the rows that the server refused, as a Parquet file in the directory or at the URI of the option `errors`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import WrongType
from penstock.spark.errors import SourceError

if TYPE_CHECKING:
    from pyarrow import Table

# The kinds of URIs that Arrow and we know.
_SCHEMES: Final = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs")


@contextmanager
def saved(rows: Table, place: str, name: str) -> Iterator[None]:
    """Save rows as the file `name`. The block publishes the other rows as jobs.

    The file has a hidden name until the block has ended. If it cannot be written, nothing is published.
    """
    import pyarrow.parquet as pq

    files, directory = _file_system(place)
    made = f"{directory}/.{uuid.uuid4().hex}.parquet"
    try:
        try:
            _make_directory(files, directory)
            with files.open_output_stream(made) as file:
                pq.write_table(rows, file)
        except OSError as error:
            raise _refusal(place, error) from None
        yield
        files.move(made, f"{directory}/{name}")
    finally:
        with suppress(OSError):
            files.delete_file(made)


def check_place(place: str) -> None:
    """Raise WrongType if `place` is a URI of an unknown kind. This does not connect to the store."""
    scheme = _scheme(place)
    if scheme not in ("", *_SCHEMES):
        raise WrongType(f"errors must be a directory or a URI ({', '.join(_SCHEMES)}), not {place!r}")


def _file_system(place: str) -> tuple[Any, str]:
    """Return the file system of a path or URI, and the directory in it."""
    from pyarrow import fs

    scheme = _scheme(place)
    if not scheme:
        return fs.LocalFileSystem(), os.path.abspath(place)
    # Arrow does not know Hadoop's name for S3.
    uri = f"s3{place[len(scheme) :]}" if scheme == "s3a" else place
    try:
        found, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise _refusal(place, error) from None
    return found, path.rstrip("/")


def _scheme(place: str) -> str:
    return place.partition(":")[0].lower() if "://" in place or place.startswith("file:") else ""


def _refusal(place: str, error: Exception) -> SourceError:
    why = " ".join(str(getattr(error, "strerror", None) or error).split())
    return SourceError(f"errors: {place}: {why}; nothing was published")


def _make_directory(files: Any, directory: str) -> None:
    from pyarrow import fs

    if isinstance(files, fs.LocalFileSystem):
        # Only the owner may read the directory, because it contains bodies.
        os.makedirs(directory, mode=0o700, exist_ok=True)
    else:
        files.create_dir(directory, recursive=True)
