"""Sessions over HTTP, waiting takes, and what happens to jobs when clients and nodes go away."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.serving import PATIENCE_S, Server, wait_for

from .http_api import Api, serving


def ready(api: Api, tube: str) -> int:
    count: int = api.get(f"/tubes/{tube}/stats")["ready"]
    return count


def test_a_take_from_a_tube_with_owners_needs_a_session(api: Api, tube: str) -> None:
    api.post(f"/tubes/{tube}/jobs", {"body": 1})
    assert api.refused("POST", f"/tubes/{tube}/take") == (409, "NOSESSION")
    assert api.refused("POST", f"/tubes/{tube}/take", headers={"Penstock-Session": "x"}) == (409, "NOSESSION")
    unknown = {"Penstock-Session": "0" * 32}
    assert api.refused("POST", f"/tubes/{tube}/take", headers=unknown) == (409, "NOSESSION")
    assert ready(api, tube) == 1


def test_a_disque_tube_needs_no_session(api: Api) -> None:
    api.post("/tubes", {"name": "shared", "type": "disque"})
    id = api.post("/tubes/shared/jobs", {"body": 1})["id"]
    (job,) = api.post("/tubes/shared/take")["jobs"]
    assert job["id"] == id
    api.post(f"{job['url'].removeprefix('/api/v1')}/ack")


def test_the_jobs_of_a_session_return_when_it_ends(api: Api, tube: str) -> None:
    api.post(f"/tubes/{tube}/jobs", {"jobs": [{"body": 1}, {"body": 2}]})
    session = api.session()
    assert len(api.post(f"/tubes/{tube}/take", {"count": 5}, headers=session)["jobs"]) == 2
    assert ready(api, tube) == 0
    api.call("DELETE", f"/sessions/{session['Penstock-Session']}")
    assert ready(api, tube) == 2


def test_the_jobs_of_a_session_return_when_it_is_not_used(api: Api, tube: str) -> None:
    api.post(f"/tubes/{tube}/jobs", {"body": 1})
    session = api.session(grace="100ms")
    assert len(api.post(f"/tubes/{tube}/take", headers=session)["jobs"]) == 1
    wait_for(lambda: ready(api, tube) == 1)
    assert api.refused("POST", f"/tubes/{tube}/take", headers=session) == (409, "NOSESSION")


def test_a_session_continues_with_another_process_of_the_api(api: Api, node: Server, tube: str) -> None:
    api.post(f"/tubes/{tube}/jobs", {"body": 1})
    with serving(node.port) as first:
        session = first.session()
        (job,) = first.post(f"/tubes/{tube}/take", headers=session)["jobs"]
    with serving(node.port) as second:
        second.post(f"{job['url'].removeprefix('/api/v1')}/ack", headers=session)


def test_a_waiting_take_gets_the_next_job(api: Api, tube: str) -> None:
    session = api.session()
    api.post("/tubes", {"name": f"{tube}-2"})
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(api.post, f"/tubes/{tube}/take", {"timeout": "20s"}, headers=session)
        wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 1)
        # Meanwhile, other requests of the session are served.
        assert api.get(f"/sessions/{session['Penstock-Session']}/jobs") == {"jobs": []}
        api.post(f"/tubes/{tube}/jobs", {"body": "now"})
        assert one.result(PATIENCE_S)["jobs"][0]["body"] == "now"
        tubes = {"tubes": [tube, f"{tube}-2"], "timeout": "20s"}
        other = pool.submit(api.post, "/take", tubes, headers=session)
        wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 1)
        api.post(f"/tubes/{tube}-2/jobs", {"body": "other"})
        assert other.result(PATIENCE_S)["jobs"][0]["body"] == "other"
    assert api.post(f"/tubes/{tube}/take", {"timeout": "10ms"}, headers=session) == {"jobs": []}


def test_a_client_that_leaves_while_it_waits_gets_no_job(api: Api, tube: str) -> None:
    session = api.session()["Penstock-Session"]
    body = b'{"timeout":"60s"}'
    head = f"POST /api/v1/tubes/{tube}/take HTTP/1.1\r\nHost: localhost\r\nPenstock-Session: {session}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port)) as connection:
        connection.sendall(head.encode() + body)
        wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 1)
    wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 0)
    api.post(f"/tubes/{tube}/jobs", {"body": 1})
    assert ready(api, tube) == 1


def test_a_session_that_ends_ends_its_waiting_takes(api: Api, tube: str) -> None:
    session = api.session()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.refused, "POST", f"/tubes/{tube}/take", {"timeout": "60s"}, headers=session)
        wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 1)
        api.call("DELETE", f"/sessions/{session['Penstock-Session']}")
        assert waiting.result(PATIENCE_S)[0] in (409, 503)
    wait_for(lambda: api.get(f"/tubes/{tube}/stats")["consumers"] == 0)


def test_a_node_that_dies_during_a_take_loses_no_job(tmp_path_factory: pytest.TempPathFactory) -> None:
    node = Server(tmp_path_factory.mktemp("dies"))
    with serving(node.port) as api, ThreadPoolExecutor(1) as pool:
        api.post("/tubes", {"name": "work"})
        session = api.session(grace="200ms")
        waiting = pool.submit(api.refused, "POST", "/tubes/work/take", {"timeout": "60s"}, headers=session)
        wait_for(lambda: api.get("/tubes/work/stats")["consumers"] == 1)
        node.kill()
        assert waiting.result(PATIENCE_S) == (503, "CONNECTIONLOST")
        assert api.refused("POST", "/tubes/work/jobs", {"body": 1})[0] == 503
        node.start_again()
        # The API connects again by itself.
        wait_for(lambda: api.http.get("/tubes/work/stats").status_code == 200)
        api.post("/tubes/work/jobs", {"body": 1})
        session = api.session(grace="200ms")
        assert len(api.post("/tubes/work/take", headers=session)["jobs"]) == 1
        node.kill()
        node.start_again()
        # The session held the job in the journal. Nobody uses the session any more, so the job returns.
        wait_for(lambda: api.http.get("/tubes/work/stats").json().get("ready") == 1)
    node.stop()


def test_a_stopping_api_ends_waiting_requests(node: Server) -> None:
    with serving(node.port) as api, ThreadPoolExecutor(1) as pool:
        api.post("/tubes", {"name": "stopping"})
        waiting = pool.submit(api.refused, "POST", "/tubes/stopping/take", {"timeout": "60s"}, headers=api.session())
        wait_for(lambda: api.get("/tubes/stopping/stats")["consumers"] == 1)
        api.stop()
        assert waiting.result(PATIENCE_S) == (503, "STOPPING")


def test_a_slow_client_keeps_nobody_waiting(api: Api, tube: str) -> None:
    """A client sends its request byte by byte, while others work."""
    slow = socket.create_connection(("127.0.0.1", api.port))
    request = f"POST /api/v1/tubes/{tube}/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n".encode()
    for at in range(len(request)):
        slow.sendall(request[at : at + 1])
        if at % 20 == 0:
            api.get(f"/tubes/{tube}/stats")
    slow.close()


def test_many_requests_at_a_time(api: Api, tube: str) -> None:
    errors: list[Any] = []

    def work(number: int) -> None:
        try:
            for each in range(20):
                api.post(f"/tubes/{tube}/jobs", {"body": number * 100 + each})
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and ready(api, tube) == 100


def test_all_connections_in_use_is_an_error(node: Server) -> None:
    with serving(node.port, connections_max=4) as api, ThreadPoolExecutor(8) as pool:
        api.post("/tubes", {"name": "crowded", "type": "disque"})
        waiting = [pool.submit(api.http.post, "/tubes/crowded/take", json={"timeout": "60s"}) for _ in range(6)]
        wait_for(lambda: sum(each.done() for each in waiting) >= 2)
        codes = {each.result().status_code for each in waiting if each.done()}
        api.stop()
        assert codes == {429}
