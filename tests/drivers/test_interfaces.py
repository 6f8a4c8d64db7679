"""Both drivers, unchanged, through every interface, in memory, in a directory and in a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import penstock
from tests.drivers.interfaces import Compat, Interface, Iproto, Python, Resp
from tests.drivers.samples import registered, write_modules
from tests.server.serving import Server

PLACES = {
    "embedded in memory": "memory",
    "embedded in a directory": "directory",
    "compat in memory": "memory",
    "compat in a directory": "directory",
    "client": "server",
    "compat over a server": "server",
    "IPROTO": "server",
    "RESP": "server",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("server")
    server = Server(home, str(write_modules(home)), "--appendfsync", "everysec")
    yield server
    server.stop()


@pytest.fixture(params=PLACES)
def interface(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Interface]:
    place = PLACES[request.param]
    with ExitStack() as stack:
        if place == "server":
            server: Server = request.getfixturevalue("server")
            server.connect().call("DEBUG", "FLUSHALL")
            if request.param == "RESP":
                resp = Resp(server.port)
                stack.enter_context(closing(resp.client))
                yield resp
                return
            if request.param == "IPROTO":
                iproto = Iproto(server.iproto_port)
                stack.enter_context(closing(iproto.connection))
                yield iproto
                return
            below: object = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{server.port}"))
        else:
            stack.enter_context(registered())
            below = stack.enter_context(penstock.open(":memory:" if place == "memory" else tmp_path))
        yield Compat(below) if request.param.startswith("compat") else Python(below)


def use_the_documented_driver(tube: Interface) -> None:
    tube.create("words", "stack")
    assert [tube.put(word) for word in ("one", {"two": 2}, "three")] == [
        (1, "r", "one"),
        (2, "r", {"two": 2}),
        (3, "r", "three"),
    ]
    assert tube.take() == (3, "t", "three")
    assert tube.peek(3) == (3, "t", "three")
    tube.release(3)
    assert tube.take() == (3, "t", "three")
    tube.ack(3)
    assert tube.peek(3) is None
    tube.bury(2)
    assert tube.peek(2) == (2, "!", {"two": 2})
    assert tube.counts() == {"ready": 1, "buried": 1}
    assert tube.take() == (1, "t", "one")
    assert tube.take() is None
    assert tube.kick(5) == 1
    assert tube.counts() == {"ready": 1, "taken": 1}
    tube.delete(2)
    tube.ack(1)
    assert tube.counts() == {}
    assert tube.put("again")[0] == 1, "the id is the one that the driver assigns"


def use_five_fields(tube: Interface) -> None:
    tube.create("jobs", "five", default=7)
    assert tube.put("usual") == ("t1", "r", "usual")
    assert tube.put("urgent", pri=1) == ("t2", "r", "urgent")
    assert tube.put([1, None, "last"], pri=8) == ("t3", "r", [1, None, "last"])
    assert tube.take() == ("t2", "t", "urgent")
    tube.release("t2", pri=9)
    assert [tube.take(), tube.take(), tube.take()] == [
        ("t1", "t", "usual"),
        ("t3", "t", [1, None, "last"]),
        ("t2", "t", "urgent"),
    ], "the driver got the options of put, of release and of the tube"
    for id in ("t1", "t2", "t3"):
        tube.ack(id)
    assert tube.counts() == {"done": 1}, "the task that keeps its counter"
    assert tube.put("next")[0] == "t4", "its ids are used once"


def use_headers(tube: Interface) -> None:
    tube.create("jobs", "five", default=7)
    assert tube.put("plain", pri=1) == ("t1", "r", "plain")
    assert tube.put("traced", pri=2, headers={"trace": "1", "tenant": "äöü"}) == ("t2", "r", "traced")
    assert tube.headers("t1") == {}
    for id in ("t1", "t2"):
        assert tube.take()[:2] == (id, "t")  # type: ignore[index]
        tube.release(id, pri=9)
    assert tube.headers("t2") == {"trace": "1", "tenant": "äöü"}, "the driver does not get them as an option"


@pytest.mark.parametrize("use", [use_the_documented_driver, use_five_fields, use_headers])
def test_a_driver_is_the_same_through_every_interface(use: Callable[[Interface], None], interface: Interface) -> None:
    use(interface)
