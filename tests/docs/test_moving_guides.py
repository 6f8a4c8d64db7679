"""The guides for users of Tarantool and Disque: every command runs and prints the documented output."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.tarantool_instance import Tarantool
from tests.cli.test_import import deljob, loadjob
from tests.docs.test_examples import CHANGING, ROOT, blocks_of
from tests.server.serving import PATIENCE_S, Server, environment

PAGES = ["moving-from-tarantool.md", "moving-from-disque.md"]

# The current directory in the pages.
HOME = "/home/ann"

# The queues of the page, with the layouts of tarantool/queue and xqueue.
QUEUES = """
local now, forever = fiber.time64(), 3153600000 * 1000000ULL
for _, each in ipairs({'fifo', 'micro', 'timed', 'microtimed', 'limited', 'volatile', 'odd', 'numbered', 'named'}) do
    box.space[each]:drop()
end
queues:truncate()
local emails, users = tube('emails', 'fifottl'), tube('users', 'utube')
emails:insert({1, 'r', now, forever, forever, 0, now, 'to: ann'})
emails:insert({2, 't', now, forever, forever, 0, now, 'to: bob'})
emails:insert({3, '!', now, forever, forever, 0, now, 'to: eve'})
emails:insert({4, '~', now + 3600 * 1000000ULL, forever, forever, 0, now, 'to: joe'})
users:insert({0, 'r', 'ann', {action = 'rename'}})
local orders = space('orders', {
    {name = 'id', type = 'string'}, {name = 'status', type = 'string'}, {name = 'priority', type = 'unsigned'},
    {name = 'order', type = 'any'},
})
orders:create_index('xq', {parts = {2, 'string', 3, 'unsigned', 1, 'string'}})
orders:insert({'a1', 'R', 1, {item = 7}})
orders:insert({'a2', 'T', 1, {item = 8}})
box.schema.user.drop('mover')
"""


def steps_of(page: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of the console blocks of a page, each with its output."""
    for block in blocks_of((ROOT / "docs" / "how-to" / page).read_text()):
        if block.language == "console":
            for step in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
                command, _, output = step.partition("\n")
                yield command, output


def run(command: str, home: Path, ports: dict[str, int]) -> str:
    """Run a command of a page in a shell. Return its output as the page would show it."""
    shell = f'penstock() {{ {sys.executable} -c "from penstock.cli.main import main; main()" "$@"; }}\n'
    for documented, port in ports.items():
        command = command.replace(documented, str(port))
    done = subprocess.run(
        ["bash", "-c", shell + command],
        cwd=home,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
        text=True,
        check=False,
    )
    output = done.stdout.replace(str(home), HOME)
    for documented, port in ports.items():
        output = output.replace(str(port), documented)
    return output


def same(text: str) -> str:
    """Return an output without the parts that differ between runs."""
    return CHANGING.sub("D-", text).rstrip("\n")


def test_the_guide_for_users_of_tarantool(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("tarantool"), "tarantool is not installed (Debian: apt-get install tarantool)")
    blocks = [each.code for each in blocks_of((ROOT / "docs/how-to/moving-from-tarantool.md").read_text())
              if each.language == "lua"]  # fmt: skip
    home = tmp_path / "home"
    home.mkdir()
    lua = QUEUES + "\n".join(f"do {block} end" for block in blocks).replace("'queues.jsonl'", f"'{home}/queues.jsonl'")
    instance = Tarantool(tmp_path / "tarantool", 0, lua)
    server = Server(tmp_path)
    try:
        ports = {"3301": instance.port, "7711": server.port}
        steps = list(steps_of("moving-from-tarantool.md"))
        assert len(steps) == 8
        for command, output in steps:
            assert same(run(command, home, ports)) == same(output), command
    finally:
        server.stop()
        instance.stop()


def test_the_guide_for_users_of_disque(tmp_path: Path, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("redis-cli"), "redis-cli is not installed (redis-tools)")
    home = tmp_path / "home"
    home.mkdir()
    (home / "disque.aof").write_bytes(loadjob(1) + loadjob(2) + deljob(1) + loadjob(3) + loadjob(4))
    server: Server | None = None
    ports: dict[str, int] = {}
    try:
        for command, output in steps_of("moving-from-disque.md"):
            if command.startswith("redis-cli") and server is None:
                server = Server(tmp_path, "--dir", str(home / "jobs"))
                ports["7711"] = server.port
            assert run(command, home, ports) == output, command
        assert server is not None
    finally:
        if server is not None:
            server.stop()


@pytest.mark.parametrize("page", PAGES)
def test_a_guide_starts_servers_in_blocks_that_a_test_does_not_run(page: str) -> None:
    """All other commands are in console blocks, which run above."""
    for block in blocks_of((ROOT / "docs" / "how-to" / page).read_text()):
        assert block.language in ("console", "lua", "sh")
        if block.language == "sh":
            assert block.code.startswith(("penstock serve ", "redis-cli -p 7711 SHUTDOWN "))
