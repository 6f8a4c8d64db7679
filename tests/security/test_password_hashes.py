"""Scrypt hashes of passwords

A comparison takes as long as the test wants, because the hash of the test waits for an event.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from penstock.server.config.scrypt import ScryptHash
from penstock.server.net.logins import _CHECKS_MAX, WAITING_MAX
from penstock.server.server import Server
from tests.security.attempts import attempt
from tests.server import in_process
from tests.server.in_process import client, until
from tests.server.serving import PATIENCE_S, command

RIGHT = b"right"
REFUSED = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
BUSY = b"-BUSY too many logins from this address are waiting; try again in a second\r\n"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GatedHash(ScryptHash):
    """A hash whose comparisons wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__(2, 1, 1, b"", b"")
        self.__dict__ |= {"gate": threading.Event(), "compared": []}

    def matches(self, password: bytes) -> bool:
        self.__dict__["compared"].append(password)
        assert self.__dict__["gate"].wait(PATIENCE_S)
        return password == RIGHT

    def open(self) -> None:
        self.__dict__["gate"].set()

    @property
    def compared(self) -> list[bytes]:
        return self.__dict__["compared"]  # type: ignore[no-any-return]


def run(home: Path, script: Callable[[Server, GatedHash], Awaitable[None]]) -> None:
    """Run a test with a server whose only user, ann, has a scrypt hash."""

    async def main() -> None:
        async with in_process.server(home) as server:
            gated = GatedHash()
            server.accounts.add("ann", gated, ["read"], [b"*"])
            try:
                await script(server, gated)
                await until(lambda: not (server.logins._checks or server.logins._waiting))
            finally:
                gated.open()
                server.logins.close()

    in_process.run(main())


@asynccontextmanager
async def logging_in(server: Server, name: str, password: bytes) -> AsyncIterator[Connection]:
    async with client(server.config.port) as (reader, writer):
        writer.write(command("AUTH", name, password))
        yield reader, writer


async def answer(connection: Connection) -> bytes:
    return await asyncio.wait_for(connection[0].readline(), PATIENCE_S)


@attempt(
    "keep the server from serving others by logins that need a slow comparison",
    port="RESP",
    caller="no password",
    result="comparisons run in threads; at most 64 wait, and 16 of an address; others are refused: BUSY",
)
def test_other_clients_are_served_during_a_comparison(tmp_path: Path) -> None:
    async def script(server: Server, gated: GatedHash) -> None:
        async with AsyncExitStack() as stack:
            guessers = [
                await stack.enter_async_context(logging_in(server, "ann", b"guess %d" % number))
                for number in range(WAITING_MAX + 4)
            ]
            refused = [await answer(guesser) for guesser in guessers[WAITING_MAX:]]
            assert refused == [BUSY] * 4
            # The first command after the login waits for it. Another client does not wait.
            assert await in_process.ask(server.config.port, "HELLO", 9) == b"-NOPROTO unsupported protocol version\r\n"
            gated.open()
            assert [await answer(guesser) for guesser in guessers[:WAITING_MAX]] == [REFUSED] * WAITING_MAX
            assert len(gated.compared) == WAITING_MAX <= _CHECKS_MAX

    run(tmp_path, script)


@attempt(
    "find out which users exist by the time of the refusal",
    port="RESP",
    caller="no password",
    result="the password for an unknown name is compared with the hash of a user, and refused even if it is right",
)
def test_an_unknown_name_is_compared_like_a_known_one(tmp_path: Path) -> None:
    async def script(server: Server, gated: GatedHash) -> None:
        gated.open()
        for name, password, reply in (
            ("nobody", b"guess", REFUSED),
            ("nobody", RIGHT, REFUSED),
            ("ann", RIGHT, b"+OK\r\n"),
            ("nobody", RIGHT, REFUSED),
        ):
            async with logging_in(server, name, password) as connection:
                assert await answer(connection) == reply
        assert gated.compared == [b"guess", RIGHT, RIGHT, RIGHT]

    run(tmp_path, script)


def test_logins_with_the_same_password_share_a_comparison_and_later_ones_need_none(tmp_path: Path) -> None:
    async def script(server: Server, gated: GatedHash) -> None:
        async with AsyncExitStack() as stack:
            workers = [
                await stack.enter_async_context(logging_in(server, "ann", RIGHT)) for _ in range(2 * WAITING_MAX)
            ]
            for _, writer in workers:
                writer.write(command("QLEN", "mail"))
            await until(lambda: sum(len(each.logins) for each in server.logins._checks.values()) == len(workers))
            gated.open()
            for worker in workers:
                assert [await answer(worker), await answer(worker)] == [b"+OK\r\n", b":0\r\n"]
        async with logging_in(server, "ann", RIGHT) as again:
            assert await answer(again) == b"+OK\r\n"
        assert gated.compared == [RIGHT]
        async with logging_in(server, "ann", b"wrong") as wrong:
            gated.open()
            assert await answer(wrong) == REFUSED

    run(tmp_path, script)


def test_a_client_that_leaves_during_a_comparison_is_removed(tmp_path: Path) -> None:
    async def script(server: Server, gated: GatedHash) -> None:
        async with logging_in(server, "ann", RIGHT) as (_, writer):
            await until(lambda: gated.compared)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        await until(lambda: len(server.clients) == 0)
        gated.open()

    run(tmp_path, script)
