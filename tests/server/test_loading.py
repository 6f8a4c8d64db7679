"""A server answers while its journal takes long to load."""

from __future__ import annotations

import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
import tarantool

import penstock
from tests.ports import free_port

from .iproto_wire import IprotoWire
from .serving import PATIENCE_S, Refusal, Wire, command
from .slow_loading import SlowLoading

PASSWORD = "a long password"


class LoadingServer(SlowLoading):
    """A server with a job in its journal and an HTTP port, which loads until `load`."""

    def __init__(self, home: Path, *words: str, password: str = "") -> None:
        self.http_port = free_port()
        super().__init__(home, "--dir", "d", "--http-port", str(self.http_port), *words, password=password)
        with self:
            self.connect().add("q", "a body")
            self.kill()
        self.start_loading()

    def probe(self, path: str) -> tuple[int, str]:
        """Return the response to a health check."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadingServer]:
    """A server that is loading in all tests."""
    with LoadingServer(tmp_path_factory.mktemp("loading")) as server:
        yield server
        server.load()


def test_clients_are_answered_loading_and_stay_connected(tmp_path: Path) -> None:
    with LoadingServer(tmp_path) as server:
        wire = server.connect()
        for words in (
            ["PING"],
            ["ADDJOB", "q", "x" * 100_000, 0],
            ["HELLO", "3"],
            ["GETJOB", "FROM", "q"],
            ["AUTH", "x"],
        ):
            with pytest.raises(Refusal, match=r"^LOADING Penstock is loading its journal, \d+ % "):
                wire.call(*words)
        whole = command("ADDJOB", "q", "y" * 1000, 0)
        wire.send_raw(whole[:500])
        server.load()
        # The connection continues in the middle of a command.
        wire.send_raw(whole[500:])
        assert len(wire.read()) == len(b"+\r\n") + 40
        assert [job[2] for job in wire.call("GETJOB", "COUNT", 5, "FROM", "q")] == [b"a body", b"y" * 1000]
        assert wire.info()["loading"] == "0"
        assert server.probe("/readyz") == (200, "ready\n")
        assert "loading journal: progress=" in server.log()
        assert server.probe("/metrics")[0] == 200


def test_many_commands_in_one_piece_are_all_refused(loading: LoadingServer) -> None:
    wire = loading.connect()
    wire.send_raw(command("QLEN", "q") * 10_000)
    assert all(wire.read().startswith(b"-LOADING ") for _ in range(10_000))


def test_garbage_is_refused_as_ever(loading: LoadingServer) -> None:
    wire = loading.connect()
    wire.send_raw(b"*1\r\n$-5\r\n")
    assert wire.read() == b"-ERR Protocol error: invalid bulk length\r\n"
    assert wire.read() == b""


def test_health_checks_do_not_kill_a_node_that_loads(loading: LoadingServer) -> None:
    assert loading.probe("/livez") == (200, "alive\n")
    status, text = loading.probe("/readyz")
    assert status == 503 and re.fullmatch(r"loading: \d+ % \(\d+ of \d+ MB\), about \d+ s left\n", text)
    assert loading.probe("/metrics")[0] == 503


def test_info_has_the_progress_under_disques_names(loading: LoadingServer) -> None:
    info = loading.connect().info()
    assert info["loading"] == "1"
    assert abs(int(info["loading_start_time"]) - time.time()) < 3 * PATIENCE_S
    assert 0 <= int(info["loading_loaded_bytes"]) <= int(info["loading_total_bytes"])
    assert int(info["loading_total_bytes"]) > 0 and int(info["loading_eta_seconds"]) >= 0
    assert 0 <= float(info["loading_loaded_perc"]) <= 100


def test_redis_py_raises_its_own_error_for_loading(loading: LoadingServer) -> None:
    with (
        redis.Redis(port=loading.port, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0)) as client,
        pytest.raises(redis.exceptions.BusyLoadingError),
    ):
        client.execute_command("ADDJOB", "q", "body", 0)


def test_a_new_client_of_ours_reports_that_the_server_loads(loading: LoadingServer) -> None:
    with pytest.raises(penstock.NoServer, match="loading its journal"):
        penstock.connect(f"penstock://127.0.0.1:{loading.port}")


def test_a_client_of_ours_that_lost_its_server_waits_until_the_journal_is_loaded(tmp_path: Path) -> None:
    with SlowLoading(tmp_path, "--dir", "d") as server:
        queue = penstock.connect(f"penstock://127.0.0.1:{server.port}", retry_for=PATIENCE_S)
        tube = queue.tube("q")
        tube.put("a body")
        server.kill()
        server.start_loading()
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(tube.take)
            server.load()
            job = taken.result(PATIENCE_S)
        assert job is not None and job.body == "a body"
        queue.close()


def test_iproto_answers_er_loading(loading: LoadingServer) -> None:
    with pytest.raises(tarantool.error.DatabaseError) as refused:
        tarantool.Connection("127.0.0.1", loading.iproto_port, reconnect_max_attempts=1)
    assert "116" in str(refused.value) and "loading its journal" in str(refused.value)


def test_no_password_is_compared_before_the_journal_is_loaded(tmp_path: Path) -> None:
    with LoadingServer(tmp_path, "--requirepass", PASSWORD, password=PASSWORD) as server:
        wire, iproto = Wire(server.port), IprotoWire(server.iproto_port)
        for words in (["INFO"], ["AUTH", PASSWORD], ["AUTH", "wrong"]):
            assert wire.ask(*words).startswith(b"-LOADING ")
        for password in (PASSWORD, "wrong"):
            code, body = iproto.log_in("default", password)
            assert code & 0x7FFF == 116 and "loading its journal" in body[0x31]
        server.load()
        assert wire.ask("INFO").startswith(b"-NOAUTH ")
        assert wire.ask("AUTH", PASSWORD) == b"+OK\r\n"
        # The salt is the one of the greeting that the client received.
        assert iproto.log_in("default", "wrong")[0] != 0
        assert iproto.log_in("default", PASSWORD)[0] == 0
        assert iproto.call("queue.statistics") == [{"q": iproto.call("queue.statistics", "q")[0]}]
        wire.close()
        iproto.close()


def test_a_signal_ends_a_server_that_loads(tmp_path: Path) -> None:
    with LoadingServer(tmp_path) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.ended() == 0
        server.start_loading()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        server.start_loading()
        server.load()
        assert server.connect().call("QLEN", "q") == 1
