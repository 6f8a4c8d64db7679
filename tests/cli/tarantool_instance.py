"""A Tarantool process with spaces of tarantool/queue and xqueue."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import tarantool

from tests.ports import free_port
from tests.server.serving import PATIENCE_S

SCRIPT = Path(__file__).with_name("tarantool_queues.lua")

BINARY_ID, BINARY = 1_000_000, b"plain bytes"


class Tarantool:
    """A running Tarantool with tasks of every type and state (see tarantool_queues.lua)."""

    def __init__(self, home: Path, count: int, lua: str = "") -> None:
        home.mkdir()
        script = home / "instance.lua"
        script.write_text(SCRIPT.read_text().replace("print('ready')", f"{lua}\nprint('ready')"))
        self.port = free_port()
        self.url = f"tarantool://mover:se%3Acret@127.0.0.1:{self.port}"
        command = ["tarantool", str(script), str(self.port), str(home), str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said == "ready\n", said + self._process.stdout.read()
        if not count:
            return
        # Lua has no binary type, so this task comes from a client.
        with closing(tarantool.Connection("127.0.0.1", self.port, user="mover", password="se:cret")) as connection:
            connection.insert("fifo", (BINARY_ID, "r", BINARY))

    def connect(self) -> Any:
        """Return a connection of Tarantool's client. Strings are bytes, because some are not UTF-8."""
        return closing(tarantool.Connection("127.0.0.1", self.port, user="mover", password="se:cret", encoding=None))

    def rows(self, space: str) -> list[Any]:
        """Return all rows of a space."""
        with self.connect() as connection:
            return [list(row) for row in connection.select(space)]

    def stop(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
