"""An object store for tests: S3 by moto, in its own process.

Emulators of other stores do not work with deltalake 1.6.6: gcp-storage-emulator cannot list objects as it asks for, and
with azurite every commit after the second fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_port
from tests.server.serving import wait_for

ROOT = Path(__file__).parent.parent.parent
SECRET = "a-secret-key-that-no-output-may-contain"


class S3:
    """A store that speaks S3's protocol. Any credentials are accepted."""

    options: dict[str, str]  # The settings and credentials for a lake in this store.

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.options = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test-access-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def new_lake(self) -> str:
        """Create a bucket. Return the place of a lake in it."""
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{bucket}", method="PUT")).close()
        return f"s3://{bucket}/lake"


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """Start a moto server in its own process for the block."""
    port = free_port()
    words = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with running(words, port):
        yield S3(port)


@contextlib.contextmanager
def running(words: list[str], port: int, **more: str) -> Iterator[None]:
    """Run a server for the block, after its port is open."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    process = subprocess.Popen(words, cwd=ROOT, env=clean | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for attempt in range(3):
            try:
                wait_for(lambda: _is_open(port) or process.poll() is not None)
                break
            except AssertionError:
                if attempt == 2:
                    raise
        assert process.poll() is None, f"{words[0]} ended with code {process.returncode}"
        yield
    finally:
        process.kill()
        process.wait()


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
