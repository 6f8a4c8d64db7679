"""Object stores for tests, each in its own process: S3 by moto, and Azure by azurite.

azurite is a package of npm, so it is used only if PENSTOCK_AZURITE is the path of its program `azurite-blob`. The
emulator gcp-storage-emulator does not work with deltalake 1.6.6, because it cannot list objects as deltalake asks for.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.serving import wait_for

ROOT = Path(__file__).parent.parent.parent
SECRET = "a-secret-key-that-no-output-may-contain"

# The account of every azurite, and its key, which is no secret.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


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


class Azure:
    """A store that speaks the protocol of Azure's blobs, with the account that azurite has."""

    options: dict[str, str]  # The settings and credentials for a lake in this store.

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.options = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            # Otherwise deltalake lists objects from a name on, which azurite does not support: a commit then fails with
            # "Invalid table version".
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_lake(self) -> str:
        """Create a container. Return the place of a lake in it."""
        container = f"container-{uuid.uuid4().hex[:12]}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed += f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
        digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), "sha256")
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"{self.url}/{container}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/lake"


@contextlib.contextmanager
def azure_server(program: str, folder: Path) -> Iterator[Azure]:
    """Start azurite for the block."""
    port = free_port()
    words = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    with running([*words, "--skipApiVersionCheck", "--disableTelemetry", "--silent"], port):
        store = Azure(port)
        # deltalake takes the address of an emulator only from the environment.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURITE_BLOB_STORAGE_URL", store.url.removesuffix(f"/{ACCOUNT}"))
            yield store


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
