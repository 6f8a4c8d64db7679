"""Slow, greedy or disconnected clients do not harm the others."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.server.raw_clients import PATIENCE_S, Client, Refusal, Server, Watch, figures, serving, wait_until, warm_up
from tests.wire.client_input import encode

MB = 1 << 20
PING = encode([b"PING"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a journal, so its memory grows for its clients only."""
    flags = ["--no-journal", "--client-output-buffer-limit", "normal", "8mb", "4mb", "1"]
    with serving(tmp_path_factory.mktemp("hostile"), *flags) as server:
        with server.client() as client:
            warm_up(client)
        yield server
        with server.client() as client:
            assert figures(client)["errors_internal"] == "0"


@pytest.fixture
def admin(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client
        assert client.ask("DEBUG", "FLUSHALL") == b"OK"


def send_until_stuck(client: Client, data: bytes) -> int:
    """Send repeatedly until the server reads no more. Return the number of bytes."""
    client.socket.settimeout(0.3)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while True:
            sent += client.socket.send(data[sent % len(data) :] if sent % len(data) else data)
    client.socket.settimeout(PATIENCE_S)
    return sent


# Slow clients


SLOW = {
    "nothing behind a count": b"*1\r\n",
    "nothing behind a length": b"*1\r\n$4\r\n",
    "an argument of two": b"*2\r\n$4\r\nPING\r\n",
    "an empty argument of two": b"*2\r\n$0\r\n\r\n",
    "a body that does not come": b"*2\r\n$4\r\nPING\r\n$1000000\r\nx",
    "a typed line without its end": b"PIN",
    "behind a whole command": PING + b"*1\r\n",
}


def test_slow_clients_are_closed_and_waiting_clients_are_not(server: Server, admin: Client) -> None:
    """All kinds of slow clients at the same time."""

    def limit(seconds: int, idle: int) -> None:
        assert admin.ask("CONFIG", "SET", "progress-timeout", seconds) == b"OK"
        assert admin.ask("CONFIG", "SET", "timeout", idle) == b"OK"

    with contextlib.ExitStack() as stack:
        slow = {name: stack.enter_context(server.client()) for name in SLOW}
        idle, dribbling, waiting, split, steady = (stack.enter_context(server.client()) for _ in range(5))
        for name, client in slow.items():
            client.send(SLOW[name])
        waiting.say("GETJOB", "FROM", "slow")
        take = encode([b"GETJOB", b"FROM", b"slow"])
        split.send(PING + take[:20])  # A network may split commands like this.
        assert split.answer() == b"PONG"
        split.send(take[20:] + b"*1\r\n")

        def beat() -> bool:
            """Run the clients that are fast enough. Return whether only they are left."""
            with contextlib.suppress(OSError):
                dribbling.send(b"x")
            steady.send(PING[:5])
            there = figures(admin)["connected_clients"]
            steady.send(PING[5:])
            assert steady.answer() == b"PONG"
            return there == "4"

        # Longer than a busy machine delays clients that are not slow.
        limit(4, 4)
        stack.callback(limit, 30, 0)
        with Watch(server):
            wait_until(beat)
        for name, client in slow.items():
            assert client.rest() in (b"", b"+PONG\r\n"), name
        assert idle.rest() == dribbling.rest() == b""
        limit(30, 0)
        for client in (waiting, split):
            admin.ask("ADDJOB", "slow", "x", 0)
            assert isinstance(client.answer(), list)
        split.send(b"$4\r\nPING\r\n")
        assert split.answer() == b"PONG"


# Clients that send no more


def test_commands_before_a_half_close_are_answered(server: Server, admin: Client) -> None:
    for count in (1, 255, 256, 257, 5_000):
        with server.client() as client:
            client.send(PING * count)
            client.half_close()
            assert client.rest() == b"+PONG\r\n" * count


def test_a_long_command_of_a_half_closed_client_is_answered(server: Server, admin: Client) -> None:
    for number in range(3_000):
        admin.say("ADDJOB", "long", number, 0)
    assert all(isinstance(admin.answer(), bytes) for _ in range(3_000))
    for words in ([b"JSCAN", b"0", b"BUSYLOOP"], [b"QPEEK", b"long", b"-1"]):
        with server.client() as client:
            client.send(encode(words) + PING)
            client.half_close()
            assert client.rest().endswith(b"+PONG\r\n")


@pytest.mark.parametrize("before", [0, 1, 300])
def test_a_take_of_a_half_closed_client_does_not_wait(server: Server, admin: Client, before: int) -> None:
    with server.client() as client:
        client.send(PING * before + encode([b"GETJOB", b"FROM", b"left"]) * 1_500 + PING)
        client.half_close()
        assert client.rest() == b"+PONG\r\n" * before + b"*-1\r\n" * 1_500 + b"+PONG\r\n"
    admin.ask("ADDJOB", "left", "x", 0, "RETRY", 0)
    assert isinstance(admin.ask("GETJOB", "NOHANG", "FROM", "left"), list)


# Clients that do not read


def test_a_client_that_does_not_read_is_paused_and_loses_no_reply(server: Server, admin: Client) -> None:
    count = 100_000
    words = PING * (count // 10)
    with Watch(server, growth_max=3 * MB) as watch, server.client() as client:
        client.socket.setblocking(False)
        sent = 0
        while sent < len(PING) * count:
            try:
                sent += client.socket.send(words[sent % len(words) :])
            except BlockingIOError:
                break
        watch.look()
        client.socket.setblocking(True)
        client.socket.settimeout(PATIENCE_S)
        # The rest cannot be sent before the client reads.
        received = b""
        while len(received) < 7 * count:
            if sent < len(PING) * count:
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    sent += client.socket.send((words * 2)[sent % len(words) :][: len(PING) * count - sent])
                client.socket.settimeout(PATIENCE_S)
            received += client.socket.recv(1 << 20)
        assert received == b"+PONG\r\n" * count


def test_replies_that_are_not_read_are_not_built(server: Server, admin: Client) -> None:
    """Each reply has a megabyte, and only a few of them are made."""
    admin.ask("ADDJOB", "large", b"x" * MB, 0)
    with Watch(server, growth_max=16 * MB) as watch, server.client() as client:
        client.send(encode([b"QPEEK", b"large", b"1"]) * 2_000)
        for _ in range(5):
            watch.look()
            time.sleep(0.02)
        assert server.rss() < watch.rss + 16 * MB
        client.reset()


def test_a_monitor_that_does_not_read_is_closed(server: Server, admin: Client) -> None:
    with Watch(server, growth_max=12 * MB), server.client() as deaf:
        assert deaf.ask("MONITOR") == b"OK"
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        # As long as a line of MONITOR can be, about 16 KB.
        shown = [b"QSCAN", *[b"\xff" * 128] * 31]
        for _ in range(40):
            admin.send(encode(shown) * 35)
            for _ in range(35):
                assert isinstance(admin.answer(), Refusal)
        wait_until(lambda: b"flags=O" not in admin.ask("CLIENT", "LIST"))  # type: ignore[operator]


def test_a_long_body_delays_no_client_while_a_monitor_is_connected(server: Server, admin: Client) -> None:
    with server.client() as monitor, Watch(server, growth_max=160 * MB) as watch:
        assert monitor.ask("MONITOR") == b"OK"
        admin.say("ADDJOB", "watched", b"\xff" * (16 * MB), 0)
        watch.look()
        assert isinstance(admin.answer(), bytes)
        admin.ask("ACKJOB", *[b"D-12345678-123456789012345678901234-05a1"] * 10_000)
        shown = [monitor.answer() for _ in range(3)]
        assert all(isinstance(line, bytes) and len(line) < 100_000 for line in shown)
        assert any(b"ADDJOB" in line for line in shown)  # type: ignore[operator]


def test_monitor_lines_do_not_interrupt_a_long_reply(server: Server, admin: Client) -> None:
    for _ in range(3_000):
        admin.say("ADDJOB", "long", "x", 0)
    assert all(isinstance(admin.answer(), bytes) for _ in range(3_000))
    done = threading.Event()

    def talk() -> None:
        while not done.is_set():
            admin.ask("PING")

    with server.client() as monitor:
        assert monitor.ask("MONITOR") == b"OK"
        thread = threading.Thread(target=talk)
        thread.start()
        try:
            # The reply is sent in slices, and other clients are served in between.
            monitor.say("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
            answer = monitor.answer()
            while not isinstance(answer, list):
                answer = monitor.answer()
        finally:
            done.set()
            thread.join()
        cursor, jobs = answer
        assert cursor == b"0" and len(jobs) == 3_000 and all(isinstance(job, list) for job in jobs)
        admin.ask("PING", "the end")
        while b"the end" not in monitor.answer():  # type: ignore[operator]
            pass


def test_monitor_never_shows_a_password(server: Server, admin: Client) -> None:
    with server.client() as monitor, server.client() as client:
        assert monitor.ask("MONITOR") == b"OK"
        client.ask("AUTH", "s3cret")
        client.ask("HELLO", 2, "AUTH", "default", "s3cret")
        # These passwords are refused as too long. A password that is set would close the monitor.
        client.ask("CONFIG", "SET", "requirepass", "s3cret" * 100)
        client.ask("CONFIG", "SET", "REQUIREPASS", "s3cret" * 100)
        client.ask("CONFIG", "SET", "requirepass", "")
        client.ask("PING", "the end")
        shown = []
        while not shown or b"the end" not in shown[-1]:
            line = monitor.answer()
            assert isinstance(line, bytes)
            shown.append(line)
        assert len(shown) == 6
        assert not any(b"s3cret" in line for line in shown)
    admin.ask("CONFIG", "SET", "slowlog-log-slower-than", 0)
    admin.ask("CONFIG", "SET", "requirepass", "s3cret")
    admin.ask("CONFIG", "SET", "requirepass", "")
    admin.ask("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    assert "s3cret" not in repr(admin.ask("SLOWLOG", "GET", 100))
    assert b"s3cret" not in server.log.read_bytes()


# Many clients


def test_idle_connections_cost_little(server: Server, admin: Client) -> None:
    count = 9_900 if os.environ.get("PENSTOCK_HYPOTHESIS") == "deep" else 1_000
    with contextlib.ExitStack() as stack, Watch(server, growth_max=count * 20_000) as watch:
        for _ in range(count):
            stack.enter_context(server.client())
        wait_until(lambda: int(figures(admin)["connected_clients"]) > count)
        for _ in range(20):
            watch.look()
        print(
            f"\n{(server.rss() - watch.rss) / count:,.0f} bytes a connection, served in {watch.served_s * 1000:.1f} ms"
        )
        stack.close()
        wait_until(lambda: int(figures(admin)["connected_clients"]) < 10)


@pytest.mark.parametrize("sent", [encode([b"QLEN", b"q", b"x" * 8 * MB]), encode([b"x" * 8 * MB])])
def test_sent_replies_are_freed_while_the_client_is_idle(server: Server, admin: Client, sent: bytes) -> None:
    with contextlib.ExitStack() as stack, Watch(server, growth_max=16 * MB):
        for _ in range(10):
            client = stack.enter_context(server.client())
            client.send(sent)
            assert isinstance(client.answer(), Refusal)


def test_connections_that_come_and_go_leak_nothing(server: Server, admin: Client) -> None:
    for _ in range(300):
        server.client().close()
    with Watch(server):
        for number in range(600):
            client = server.client()
            client.send([b"", PING, b"*1\r\n$4", encode([b"GETJOB", b"FROM", b"nothing"])][number % 4])
            client.reset() if number % 2 else client.close()
            if number % 20 == 19:
                # The memory of many concurrent connections is not returned to the system.
                wait_until(lambda: int(figures(admin)["connected_clients"]) < 10)
    assert server.descriptors() < 40


def test_a_hundred_thousand_commands_are_answered_in_order_and_others_are_served_meanwhile(
    server: Server, admin: Client
) -> None:
    count = 100_000
    with Watch(server, growth_max=4 * MB) as watch, server.client() as client:
        sent = b"".join(encode([b"PING", b"%05d" % number]) for number in range(count))
        received = b""
        client.socket.setblocking(False)
        at = looks = 0
        while len(received) < 11 * count:
            with contextlib.suppress(BlockingIOError):
                at += client.socket.send(sent[at : at + (1 << 18)]) if at < len(sent) else 0
            with contextlib.suppress(BlockingIOError):
                received += client.socket.recv(1 << 20)
            if len(received) > looks * count:
                looks += 1
                watch.look()
        assert received == b"".join(b"$5\r\n%05d\r\n" % number for number in range(count))
        print(f"\nothers waited up to {watch.served_s * 1000:.0f} ms")


def test_a_client_that_sends_without_pause_does_not_starve_others(server: Server, admin: Client) -> None:
    """Long lines take time to parse. The loop must not read all of one client's lines before it serves another."""
    done = threading.Event()

    def flood(client: Client) -> None:
        with contextlib.suppress(OSError):
            while not done.is_set():
                client.send(b"QLEN" + b" x" * 32_000 + b"\n")

    def read(client: Client) -> None:
        with contextlib.suppress(OSError):
            while client.socket.recv(MB):
                pass

    with contextlib.ExitStack() as stack, Watch(server, growth_max=4 * MB) as watch:
        clients = [stack.enter_context(server.client()) for _ in range(3)]
        threads = [threading.Thread(target=work, args=[client]) for client in clients for work in (flood, read)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            watch.look()
            time.sleep(0.05)
        done.set()
        for client in clients:
            client.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        print(f"\nothers waited up to {watch.served_s * 1000:.0f} ms")


def test_the_maximum_of_clients_is_kept(server: Server, admin: Client) -> None:
    wait_until(lambda: figures(admin)["connected_clients"] == "1")  # Clients of other tests may be about to close.
    there = 1
    rejected = int(figures(admin)["rejected_connections"])
    assert admin.ask("CONFIG", "SET", "maxclients", there + 2) == b"OK"
    with server.client() as first, server.client() as second:
        assert first.ask("PING") == second.ask("PING") == b"PONG"
        for _ in range(20):
            with server.client() as third:
                assert third.rest() == b"-ERR max number of clients reached\r\n"
        assert first.ask("PING") == b"PONG"
    wait_until(lambda: int(figures(admin)["connected_clients"]) == there)
    with server.client() as third:
        assert third.ask("PING") == b"PONG"
    assert int(figures(admin)["rejected_connections"]) == rejected + 20
    assert admin.ask("CONFIG", "SET", "maxclients", 10_000) == b"OK"


# Waiting clients


def test_commands_after_a_waiting_take_run_when_it_is_served(server: Server, admin: Client) -> None:
    with server.client() as client:
        client.send(
            encode([b"GETJOB", b"FROM", b"behind"]) + b"".join(encode([b"PING", b"%d" % n]) for n in range(999))
        )
        wait_until(lambda: figures(admin)["blocked_clients"] == "1")
        admin.ask("ADDJOB", "behind", "x", 0)
        assert client.answer()[0][2] == b"x"  # type: ignore[index]
        assert [client.answer() for _ in range(999)] == [b"%d" % number for number in range(999)]


def test_commands_after_a_waiting_take_are_not_read_without_limit(server: Server, admin: Client) -> None:
    with Watch(server) as watch, server.client() as client:
        client.say("GETJOB", "FROM", "behind")
        sent = send_until_stuck(client, encode([b"PING", b"x" * 1_000]) * 100)
        print(f"\n{sent:,} bytes were taken by the sockets")
        watch.look()
        client.reset()


def test_commands_during_a_client_pause_are_not_read_without_limit(server: Server, admin: Client) -> None:
    # When the pause is over, this is a client that never reads.
    with Watch(server, growth_max=3 * MB) as watch, server.client() as client:
        began = time.monotonic()
        # Longer than a busy machine takes to send the bytes that must not be read.
        admin.ask("CLIENT", "PAUSE", 4_000)
        client.send(PING)
        sent = send_until_stuck(client, encode([b"PING", b"x" * 1_000]) * 100)
        assert sent < 16 * MB and server.rss() < watch.rss + MB
        assert client.answer() == b"PONG"
        assert time.monotonic() - began > 3.9
        client.reset()


def test_a_job_that_was_never_sent_to_a_disconnected_client_goes_back(server: Server, admin: Client) -> None:
    """Many clients wait. While the server is suspended, they disconnect, and jobs for them arrive."""
    with contextlib.ExitStack() as stack, server.client() as producer:
        waiting = [stack.enter_context(server.client()) for _ in range(50)]
        for client in waiting:
            client.say("GETJOB", "FROM", "gone")
        wait_until(lambda: figures(admin)["blocked_clients"] == "50")
        with server.standing_still():
            for client in waiting:
                client.reset()
            for number in range(50):
                producer.say("ADDJOB", "gone", number, 0, "RETRY", 0)
        assert all(isinstance(producer.answer(), bytes) for _ in range(50))
        # The server has noticed the disconnects: only the two other clients are left.
        wait_until(lambda: figures(admin)["connected_clients"] == "2")
        assert figures(admin)["blocked_clients"] == "0" and admin.ask("QLEN", "gone") == 50


def test_commands_that_name_very_many_jobs_are_refused_or_quick(server: Server, admin: Client) -> None:
    with Watch(server, within_s=2.0, growth_max=200 * MB) as watch, server.client() as client:
        client.send(encode([b"ACKJOB", *[b"D-12345678-123456789012345678901234-05a1"] * 100_001]))
        watch.look()
        assert client.answer() == Refusal("ERR a command may name up to 100000 jobs")


def test_a_client_cannot_have_a_name_without_end(server: Server, admin: Client) -> None:
    for words in (["SETNAME"], ["SETINFO", "LIB-NAME"], ["SETINFO", "LIB-VER"]):
        assert admin.ask("CLIENT", *words, "x" * 1_024) == b"OK"
        assert admin.ask("CLIENT", *words, "x" * 1_025) == Refusal("ERR Client names may have up to 1024 bytes.")
