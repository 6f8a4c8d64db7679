"""The page of metrics: it is valid, complete and bounded, and its counters never decrease."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core import states as s
from penstock.core import views
from penstock.core.policy import FIFO
from penstock.node.caller import EVERYTHING
from penstock.server.metrics.families import FAMILIES, HISTOGRAM
from penstock.server.metrics.scrape import Scrapes, collect, run_slice
from penstock.server.net.http import HttpRequest
from penstock.server.net.metrics_access import metrics_refusal
from penstock.server.server import Server
from tests.ports import free_port

from .. import in_process
from ..in_process import ask, until
from ..iproto_wire import call

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def with_server(home: Path, script: Callable[[Server], Coroutine[Any, Any, None]], *words: str) -> None:
    async def main() -> None:
        async with in_process.server(home, *words) as server:
            await script(server)

    in_process.run(main())


async def scrape(server: Server) -> Samples:
    """Return the samples of a scrape by name and labels. Check that the page fits to the table of metrics."""
    text = b"".join(await Scrapes(server).page()).decode()
    known = {family.name: family for family in FAMILIES}
    samples: Samples = {}
    for found in text_string_to_metric_families(text):
        family = known[f"{found.name}_total" if found.type == "counter" else found.name]
        assert (found.documentation, found.type) == (family.help, family.kind)
        for sample in found.samples:
            extra = {"le"} if family.kind == HISTOGRAM and sample.name.endswith("_bucket") else set()
            assert set(sample.labels) == set(family.labels) | extra
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, "no series occurs twice"
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the sample with these labels. `from_` is the label `from`."""
    return samples[name, frozenset((name.rstrip("_"), text) for name, text in labels.items())]


def test_each_cause_of_a_transition_has_a_counter_of_its_own(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        port, counts = server.config.port, lambda: views.events(server.turn.engine.tubes[b"t"])
        await ask(port, "TUBE", "CREATE", "t", "TYPE", "fifottl", "RETRY", "2x then drop", "TTR", "10ms")
        await ask(port, "PUT", "t", "x")
        await ask(port, "TAKE", "t")  # The connection is closed before the ttr is over, or afterwards.
        await until(lambda: counts()[s.DISCONNECTED] + counts()[s.TTR_PASSED] == 1)
        async with in_process.client(port) as (_, writer):
            writer.write(in_process.command("TAKE", "t"))
            await until(lambda: counts()[s.DISCARDED])
        samples, back = await scrape(server), {"tube": "t", "from_": "taken", "to": "ready"}
        happened = counts()
        for event in (s.DISCONNECTED, s.TTR_PASSED):
            labels = {**back, "event": s.EVENT_NAMES[event]}
            if happened[event]:
                assert value(samples, "penstock_tube_transitions_total", **labels) == happened[event]
        assert value(samples, "penstock_tube_dead_lettered_total", tube="t", reason="max_deliveries") == 1
        assert value(samples, "penstock_tube_wait_seconds_count", tube="t") == 2
        assert ("penstock_tube_run_seconds_count", frozenset([("tube", "t")])) not in samples

    with_server(tmp_path, script)


def test_the_age_of_the_oldest_job_grows_while_no_client_is_connected(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        await ask(server.config.port, "PUT", "t", "x")
        now = server.turn.clock.now()
        await until(lambda: server.turn.clock.now() > now + 5)
        assert value(await scrape(server), "penstock_tube_oldest_ready_age_seconds", tube="t") >= 0.005

    with_server(tmp_path, script)


def test_consumers_are_sessions_that_wait_or_hold_jobs(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        port = server.config.port
        await ask(port, "TUBE", "CREATE", "t", "TYPE", "utube")
        await ask(port, "MPUT", "t", "JOB", "a", "JOB", "b")
        async with in_process.client(port) as one, in_process.client(port) as two, in_process.client(port) as three:
            one[1].write(in_process.command("TAKE", "t"))
            await one[0].readline()
            two[1].write(in_process.command("TAKE", "t", "TIMEOUT", "1h"))
            three[1].write(in_process.command("TAKE", "t", "KEY", "k", "TIMEOUT", "1h"))
            await until(lambda: sum(client.is_waiting for client in server.clients) == 2)
            samples = await scrape(server)
        assert value(samples, "penstock_tube_consumers", tube="t") == 3
        assert value(samples, "penstock_tube_waiting_takes", tube="t") == 2
        assert value(samples, "penstock_waiting_clients") == 2
        assert value(samples, "penstock_connections", protocol="resp") == 3

    with_server(tmp_path, script)


def test_commands_are_counted_by_protocol_and_result(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        port = server.config.port
        await ask(port, "PUT", "t", "x")
        await ask(port, "PUT", "t")
        await ask(port, "NONSENSE")
        await ask(port, "TUBE", "CREATE", "none")
        async with in_process.client(port) as (_, writer):
            writer.write(in_process.command("TAKE", "none", "TIMEOUT", "1h"))
            await until(lambda: any(client.is_waiting for client in server.clients))
        async with in_process.client(server.config.iproto_port) as (reader, writer):
            await reader.readexactly(128)  # The greeting.
            writer.write(call("queue.create_tube", ["t2", "fifo"]) + call("queue.tube.t2:put", ["x"]) + call("no"))
            await until(lambda: server.dispatcher.functions[b"(other)"].refused)
        samples = await scrape(server)

        def calls(protocol: str, command: str) -> list[float]:
            labels = {"protocol": protocol, "command": command}
            name = "penstock_commands_total"
            return [value(samples, name, **labels, result=result) for result in ("ok", "error", "waited")]

        assert calls("resp", "put") == [1, 1, 0] and calls("resp", "take") == [0, 0, 1]
        assert calls("iproto", "queue.tube:put") == [1, 0, 0] and calls("iproto", "queue.create_tube") == [1, 0, 0]
        assert calls("iproto", "(other)")[1] == 1
        unknown = {"protocol": "resp", "command": "(unknown)", "result": "error"}
        assert value(samples, "penstock_commands_total", **unknown) == 1
        ran = {"protocol": "resp", "command": "put"}
        assert value(samples, "penstock_command_duration_seconds_count", **ran) == 2

    with_server(tmp_path, script)


def test_counters_do_not_decrease_when_the_statistics_are_reset(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        await ask(server.config.port, "PUT", "t", "x")
        before = await scrape(server)
        await ask(server.config.port, "CONFIG", "RESETSTAT")
        after = await scrape(server)
        counters = {family.name for family in FAMILIES if family.kind == "counter"}
        for (name, labels), count in before.items():
            if name in counters:
                assert after[name, labels] >= count, (name, labels)

    with_server(tmp_path, script)


def test_tubes_with_hostile_names_make_a_valid_page(tmp_path: Path) -> None:
    names = [b"\xff", b"\\xff", b'a "b"\\\n{}', "ü\u2028".encode(), b"n" * 200, b"n" * 201, b"n" * 202, b'",le="']

    async def script(server: Server) -> None:
        server.turn.begin()
        for name in names:
            server.turn.engine.create_tube(name, FIFO, server.turn.now)
        samples = await scrape(server)
        shown = {dict(labels)["tube"] for name, labels in samples if name == "penstock_tube_consumers"}
        assert len(shown) == len(names) and {'a "b"\\\n{}', "ü\u2028", '",le="'} <= shown

    with_server(tmp_path, script)


@pytest.mark.parametrize("shown", [0, 2, 3])
def test_only_the_tubes_with_the_most_jobs_are_shown(tmp_path: Path, shown: int) -> None:
    async def script(server: Server) -> None:
        for name, jobs in (("small", 1), ("large", 3), ("medium", 2)):
            for _ in range(jobs):
                await ask(server.config.port, "PUT", name, "x")
        samples = await scrape(server)
        tubes = {dict(labels)["tube"] for name, labels in samples if name == "penstock_tube_consumers"}
        assert tubes == set(["large", "medium", "small"][:shown])
        assert value(samples, "penstock_tubes_not_shown") == 3 - shown and value(samples, "penstock_tubes") == 3

    with_server(tmp_path, script, "--metrics-tubes", str(shown))


def test_requests_at_the_same_time_share_one_scrape(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        scrapes = Scrapes(server)
        one, two = await asyncio.gather(scrapes.page(), scrapes.page())
        assert one is two and await scrapes.page() is not one

    with_server(tmp_path, script)


def test_the_metrics_of_two_nodes_count_both_and_what_they_send(tmp_path: Path) -> None:
    async def script(one: Server, other: Server) -> None:
        assert (await ask(one.config.port, "ADDJOB", "q", "x", 0, "REPLICATE", 2)).startswith(b"+")
        samples, peer = await scrape(one), {"node": other.host.node}
        assert value(samples, "penstock_cluster_nodes", state="ok") == 2
        assert value(samples, "penstock_peer_up", **peer) == 1
        assert value(samples, "penstock_peer_sent_bytes_total", **peer) > 0
        assert value(samples, "penstock_peer_received_bytes_total", **peer) > 0
        assert value(samples, "penstock_replication_copies_wanted_total") == 2
        assert value(samples, "penstock_replication_copies_made_total") == 2
        assert value(samples, "penstock_replication_acks_seconds_count") == 1
        assert value(samples, "penstock_replication_lag_seconds") == 0

    in_process.run_two(tmp_path, script)


def test_metrics_and_health_checks_are_served_over_tls(tmp_path: Path, certificate: Path) -> None:
    port, tls = free_port(), ssl.create_default_context(cafile=str(certificate / "cert.pem"))

    async def script(server: Server) -> None:
        for path, start in (("/livez", b"alive"), ("/metrics", b"# HELP penstock_")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost")
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and body.startswith(start)
            writer.close()

    words = ["--http-tls-port", str(port), "--tls-cert-file", f"{certificate}/cert.pem"]
    with_server(tmp_path, script, *words, "--tls-key-file", f"{certificate}/key.pem")


def test_a_scrape_of_many_tubes_is_divided_into_many_steps(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        server.turn.begin()
        for number in range(3_000):
            server.turn.engine.create_tube(b"%d" % number, FIFO, server.turn.now)
        parts: list[bytes] = []
        work, steps = collect(server, None, parts), 0
        while not run_slice(work, 0):
            steps += 1
        assert steps > 3_000 and len(parts) > 60 and max(map(len, parts)) < 500_000

    with_server(tmp_path, script, "--metrics-tubes", "3000")


def request(authorization: str = "", is_local: bool = False, is_encrypted: bool = False) -> HttpRequest:
    headers = [f"Authorization: {authorization}".encode()] if authorization else []
    return HttpRequest("/metrics", headers, "192.0.2.1:4000", is_local, is_encrypted)


def status(server: Server, request: HttpRequest) -> int:
    refusal = metrics_refusal(server, request)
    return 200 if refusal is None else refusal.status


# Base64 of reader:secret, writer:secret, mail:secret, :shared and reader:wrong.
READER, WRITER, MAIL = "Basic cmVhZGVyOnNlY3JldA==", "Basic d3JpdGVyOnNlY3JldA==", "Basic bWFpbDpzZWNyZXQ="
SHARED, WRONG = "Basic OnNoYXJlZA==", "Basic cmVhZGVyOndyb25n"


def test_a_scrape_from_another_machine_needs_a_token_or_a_user_that_may_read(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        assert status(server, request(is_local=True)) == 200
        assert status(server, request()) == 401
        assert [status(server, request(each)) for each in (READER, WRITER, MAIL, SHARED)] == [200, 403, 403, 200]
        assert [status(server, request(each)) for each in ("Basic !", "Bearer x", "Digest x")] == [401, 401, 401]
        user, now = server.accounts.find("reader"), server.turn.clock.now()
        assert user is not None
        for expires, tubes, expected in ((now + 60_000, None, 200), (now, None, 401), (now + 60_000, (b"a",), 403)):
            token = server.tokens.create(user, expires, EVERYTHING, tubes, "")
            assert status(server, request(f"Bearer {token.decode()}")) == expected
        for _ in range(10):
            assert status(server, request(WRONG)) in (401, 429)
        assert status(server, request(READER)) == 429, "a guesser learns nothing more"

    users = ["--user", "reader password:secret commands:read", "--user", "writer password:secret commands:write"]
    users += ["--user", "mail password:secret commands:read tubes:mail*", "--requirepass", "shared"]
    with_server(tmp_path, script, *users)


def test_without_users_other_machines_are_treated_like_other_clients(tmp_path: Path) -> None:
    async def script(server: Server) -> None:
        assert status(server, request()) == 403
        assert status(server, request(is_encrypted=True)) == 200
        server.config.change("protected-mode", "no")
        assert status(server, request()) == 200

    with_server(tmp_path, script)
