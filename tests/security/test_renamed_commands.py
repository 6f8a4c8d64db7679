"""Renamed and removed commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.security.attempts import attempt
from tests.security.renamed_commands import ClosedNode
from tests.server.raw_clients import Client, Refusal, Server, serving
from tests.server.serving import Refusal as WireRefusal

NEW_NAME = "s3cret"
CONFIG = f"""
requirepass = "everything"
slowlog_log_slower_than = 0
[rename_command]
config = "{NEW_NAME}"
debug = ""
kick = ""
[users.reader]
password = "r"
commands = ["read"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("renamed"), "--no-journal", config=CONFIG) as server:
        yield server


@pytest.fixture
def owner(server: Server) -> Iterator[Client]:
    with server.client() as client:
        assert client.ask("AUTH", "everything") == b"OK"
        yield client


@attempt(
    "call a removed or renamed command by its old name, in other case, as an inline command, through CALL",
    port="RESP",
    caller="any user",
    result="refused: unknown command",
)
def test_an_old_name_is_unknown_in_every_spelling(owner: Client) -> None:
    for name in ("CONFIG", "config", "Config", "cOnFiG", "DEBUG", "debug", "KICK", "kick", "Kick"):
        assert str(owner.ask(name, "GET", "port")) == f"ERR unknown command '{name}'"
        owner.send(f"{name} GET port\r\n".encode())
        assert str(owner.answer()) == f"ERR unknown command '{name}'"
        assert isinstance(owner.ask("CALL", name), Refusal)
    assert owner.ask(NEW_NAME, "GET", "port") == owner.ask(NEW_NAME.upper(), "GET", "port") != []


@attempt(
    "learn the new name from COMMAND, COMMAND LIST, INFO and DOCS, INFO commandstats, CLIENT LIST, MONITOR, SLOWLOG",
    port="RESP",
    caller="administrator, and a user who may not run the command",
    result="none of them shows it; COMMAND INFO and DOCS describe it to a user who gives the name and may run it",
)
def test_the_new_name_is_never_shown(server: Server, owner: Client) -> None:
    with server.client() as reader, server.client() as monitor:
        assert reader.ask("AUTH", "reader", "r") == monitor.ask("AUTH", "everything") == b"OK"
        assert monitor.ask("MONITOR") == b"OK"
        assert isinstance(owner.ask(NEW_NAME, "GET", "port"), list)
        assert b'"config" "GET" "port"' in monitor.answer()  # type: ignore[operator]
        for client in (owner, reader):
            for line in ("COMMAND", "COMMAND LIST", "COMMAND INFO", "COMMAND DOCS", "INFO all", "CLIENT ID"):
                assert NEW_NAME not in repr(client.ask(*line.split())), line
        assert owner.ask("COMMAND", "COUNT") == len(owner.ask("COMMAND", "LIST"))  # type: ignore[arg-type]
        assert reader.ask("COMMAND", "INFO", NEW_NAME, "config", "debug") == [None, None, None]
        assert reader.ask("COMMAND", "DOCS", NEW_NAME) == []
        assert owner.ask("COMMAND", "INFO", "config", "debug") == [None, None]
        assert owner.ask("COMMAND", "INFO", NEW_NAME) != [None]
    # Checked afterwards, so that the last command of the other connection is the renamed one.
    with server.client() as other:
        assert owner.ask("SLOWLOG", "RESET") == b"OK"
        other.ask("AUTH", "everything")
        other.ask(NEW_NAME, "GET", "port")
        for line in ("CLIENT LIST", "SLOWLOG GET 1000"):
            told = repr(owner.ask(*line.split()))
            assert NEW_NAME not in told and "config" in told, line
    assert NEW_NAME not in server.log.read_text()


@attempt(
    "list commands that the user may not run: COMMAND LIST",
    port="RESP",
    caller="user with commands = read",
    result="only commands of the user's own classes are listed",
)
def test_command_lists_only_commands_that_the_user_may_run(server: Server) -> None:
    with server.client() as reader:
        assert reader.ask("AUTH", "reader", "r") == b"OK"
        names = reader.ask("COMMAND", "LIST")
        assert isinstance(names, list) and b"qlen" in names
        assert not {b"addjob", b"shutdown", b"cluster", b"monitor"} & set(names)


@attempt(
    "use a tube of a node that has renamed or removed the command, through a node that has not",
    port="RESP, bus",
    caller="any user",
    result="a renamed command works under the name of the node that the client uses; a removed one stays removed",
)
def test_a_command_goes_to_another_node_under_its_own_name(two: list[ClosedNode]) -> None:
    with contextlib.closing(two[1].client("owner", "o")) as owner:
        owner.call("TUNNEL", "CREATE", "renamed")
        id = owner.call("PUT", "renamed", "b")
        with pytest.raises(WireRefusal, match="unknown command 'TUBE'"):
            owner.call("TUBE", "INFO", "renamed")
    with contextlib.closing(two[0].client("owner", "o")) as owner:
        assert owner.call("PIPE", "INFO", "renamed")
        assert owner.call("JOB", "PEEK", id)
        # The second node's PIPE is JOB, which has no INFO.
        assert owner.call("PIPE", "STATS", "renamed")
        for word in ("TUBE", "tube", "Tube", "TUNNEL"):
            with pytest.raises(WireRefusal, match="unknown command"):
                owner.call(word, "INFO", "renamed")
        with pytest.raises(WireRefusal, match="unknown command 'kick'"):
            owner.call("KICK", "renamed")
