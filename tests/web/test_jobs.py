"""Jobs over HTTP: bodies, puts, takes, settling, search."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from penstock.web.routes.cluster_routes import node_of
from tests.server.serving import wait_for

from .http_api import Api


def put(api: Api, tube: str, body: Any, **options: Any) -> str:
    id: str = api.post(f"/tubes/{tube}/jobs", {"body": body, **options})["id"]
    return id


def path_of(id: str) -> str:
    return "/jobs/" + id.replace("/", "%2F").replace("+", "%2B")


BODIES = [
    '{"n":123456789012345678901234567890}',
    "[1.10, 1e3, -0.0, 0.1000000000000000055511151231257827]",
    '{ "spaces" :\t[ 1 ,2 ] }',
    '{"twice":1,"twice":2}',
    '"text"',
    '"\\ud83d\\ude00 \\u0000 ü"',
    "null",
    "true",
    "7",
]


@pytest.mark.parametrize("text", BODIES)
def test_a_json_body_is_returned_as_it_was_sent(api: Api, text: str) -> None:
    api.post("/tubes", {"name": "exact"})
    sent = b'{"as":"json", "body":' + text.encode() + b"}"
    id = api.call("POST", "/tubes/exact/jobs", content=sent, headers={"Content-Type": "application/json"})["id"]
    answer = api.http.get(path_of(id))
    assert f'"body":{text},"as":"json","kind":"json"' in answer.text
    assert api.get(path_of(id))["body"] == json.loads(text)


def test_a_string_is_text_and_base64_is_bytes(api: Api, tube: str) -> None:
    text = api.get(path_of(put(api, tube, "grüße")))
    assert (text["body"], text["as"], text["kind"]) == ("grüße", "text", "text")
    raw = base64.b64encode(bytes(range(256))).decode()
    found = api.get(path_of(put(api, tube, raw, **{"as": "base64"})))
    assert (found["body"], found["as"], found["kind"]) == (raw, "base64", "bytes")
    packed = api.get(path_of(put(api, tube, "kYGhYQE=", **{"as": "msgpack"})))
    assert (packed["body"], packed["as"], packed["kind"]) == ("kYGhYQE=", "base64", "msgpack")


@pytest.mark.parametrize("media", ["text/plain", "text/plain; charset=utf-8", "application/octet-stream"])
def test_a_request_can_be_the_body_itself(api: Api, tube: str, media: str) -> None:
    headers = {"Content-Type": media}
    id = api.call("POST", f"/tubes/{tube}/jobs?priority=7&delay=1h", content=b'{"raw"', headers=headers)["id"]
    job = api.get(path_of(id))
    assert (job["body"], job["as"]) == ('{"raw"', "text")
    assert job["kind"] == ("text" if media.startswith("text") else "bytes")
    assert job["state"] == "delayed" and job["meta"]["priority"] == 7


def test_text_that_is_not_utf8_is_refused(api: Api, tube: str) -> None:
    answer = api.http.post(f"/tubes/{tube}/jobs", content=b"\xff", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BADREQUEST")


def test_many_jobs_are_put_together_or_not_at_all(api: Api, tube: str) -> None:
    jobs = [{"body": number, "priority": number} for number in range(5)]
    found = api.post(f"/tubes/{tube}/jobs", {"jobs": jobs, "ttl": "1h"})["jobs"]
    assert len(found) == 5 and api.get(found[3]["url"].removeprefix("/api/v1"))["body"] == 3
    refused = [{"body": 1}, {"body": 2, "retry": "nonsense"}]
    assert api.refused("POST", f"/tubes/{tube}/jobs", {"jobs": refused}) == (400, "BADRETRY")
    assert api.get(f"/tubes/{tube}/stats")["ready"] == 5


def test_all_options_of_a_put_reach_the_job(api: Api, tube: str) -> None:
    options = {"delay": 10, "ttl": "2h", "ttr": None, "priority": -3, "name": "own", "headers": {"trace": "ü"}}
    job = api.get(path_of(put(api, tube, 1, **options)))
    meta = job["meta"]
    assert job["headers"] == {"trace": "ü"} and job["state"] == "delayed"
    assert meta["wakes_ms"] - meta["created_ms"] == 10_000 and meta["ttr_ms"] is None
    assert (meta["priority"], meta["name"]) == (-3, "own")
    later = put(api, tube, 2, at_ms=meta["created_ms"] + 3_600_123)
    assert api.get(path_of(later))["meta"]["wakes_ms"] == meta["created_ms"] + 3_600_123


def test_a_job_is_taken_and_acked_with_a_session(api: Api, tube: str) -> None:
    id = put(api, tube, {"to": "ada"})
    session = api.session()
    (job,) = api.post(f"/tubes/{tube}/take", headers=session)["jobs"]
    assert (job["id"], job["state"], job["deliveries"], job["body"]) == (id, "taken", 1, {"to": "ada"})
    assert api.get(f"/sessions/{session['Penstock-Session']}/jobs") == {"jobs": [id]}
    assert api.refused("POST", f"{path_of(id)}/ack") == (409, "NOTOWNER")
    assert api.post(f"{path_of(id)}/ack", headers=session) is None
    assert api.refused("GET", path_of(id)) == (404, "NOJOB")


def test_a_job_can_be_named_in_every_form(api: Api, tube: str) -> None:
    id = put(api, tube, 1)
    number = api.get(path_of(id))["number"]
    url = api.get(path_of(id))["url"].removeprefix("/api/v1")
    for path in (path_of(id), url, f"/jobs/{tube}%23{number}"):
        assert api.get(path)["id"] == id


def test_every_way_to_settle_a_job(api: Api, tube: str) -> None:
    session = api.session()

    def taken() -> str:
        id = put(api, tube, 1)
        api.post(f"/tubes/{tube}/take", headers=session)
        return path_of(id)

    def state(job: str) -> str:
        found: str = api.get(job)["state"]
        return found

    job = taken()
    api.post(f"{job}/touch", {"by": "1m"}, headers=session)
    api.post(f"{job}/touch", headers=session)
    api.post(f"{job}/release", {"delay": "1h", "priority": 3}, headers=session)
    assert state(job) == "delayed"
    api.post(f"{job}/run")
    assert state(job) == "ready"
    api.call("PATCH", job, {"priority": 9, "body": [1, 2.50]})
    assert api.get(job)["meta"]["priority"] == 9 and "[1, 2.50]" not in api.http.get(job).text
    assert api.get(job)["body"] == [1, 2.5]
    api.call("DELETE", job)
    job = taken()
    api.post(f"{job}/requeue", headers=session)
    assert state(job) == "ready"
    api.call("DELETE", job)
    job = taken()
    api.post(f"{job}/bury", {"reason": "bad"}, headers=session)
    assert state(job) == "buried" and api.get(job)["meta"]["reason"] == "bad"
    api.post(f"{job}/dig")
    assert state(job) == "ready"
    api.post(f"{job}/switch", {"state": "delayed", "delay": "1h"})
    api.post(f"{job}/restart")
    assert state(job) == "ready"
    api.post("/tubes", {"name": f"{tube}-2"})
    api.post(f"{job}/move", {"tube": f"{tube}-2"})
    assert api.get(job)["tube"] == f"{tube}-2"
    assert api.post(f"{job}/cancel", {"reason": "no need"}) == {"ended": True}
    job = taken()
    api.post(f"{job}/nack", {"reason": "HTTP 503"}, headers=session)
    assert api.get(job)["nacks"] == 1
    api.call("DELETE", job)
    job = taken()
    api.post(f"{job}/snatch")
    assert state(job) == "ready"
    api.call("DELETE", job)
    job = taken()
    api.post(f"{job}/done", {"result": {"sent": 1.50}, "ttl": "1h"}, headers=session)
    assert state(job) == "done" and '"body":{"sent":1.5},' in api.http.get(job).text


def test_a_wait_reports_how_a_job_ended(api: Api, tube: str) -> None:
    id = put(api, tube, 1)
    assert api.get(f"{path_of(id)}/wait?timeout=0")["outcome"] == "timeout"
    session = api.session()
    api.post(f"/tubes/{tube}/take", headers=session)
    api.post(f"{path_of(id)}/ack", headers=session)
    assert api.get(f"{path_of(id)}/wait?timeout=1s")["outcome"] in ("acked", "gone")


def test_pages_of_jobs_have_every_job_once(api: Api, tube: str) -> None:
    ids = {put(api, tube, number) for number in range(25)}
    found: list[str] = []
    cursor = None
    while True:
        page = api.get("/jobs", params={"tube": tube, "limit": 7, **({"cursor": cursor} if cursor else {})})
        assert len(page["jobs"]) <= 7
        found += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert len(found) == 25 and set(found) == ids
    assert api.get("/jobs", params={"tube": tube, "state": "buried,taken"})["jobs"] == []
    found = api.get("/jobs", params={"tube": tube, "where": "body >= 20 and body != 22", "limit": 3})
    assert [job["body"] for job in found["jobs"]] == [20, 21, 23] and found["examined"] >= 23
    assert api.refused("GET", "/jobs", params={"where": "body = 1"}) == (400, "BADCONDITION")
    assert api.refused("GET", "/jobs?cursor=nonsense") == (400, "BADCURSOR")
    other = api.get("/tubes?limit=1")["cursor"]
    assert api.refused("GET", f"/jobs?cursor={other}") == (400, "BADCURSOR")


def test_the_history_of_a_job_stays_when_the_job_is_gone(api: Api, tube: str) -> None:
    id = put(api, tube, {"a": 1})
    api.call("DELETE", path_of(id))

    def events_of() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get(f"{path_of(id)}/history")["events"]
        return found

    wait_for(lambda: len(events_of()) == 2)  # The history has what is durable.
    events = events_of()
    assert [event["event"] for event in events] == ["put", "deleted"]
    assert json.loads(events[0]["body"]) == {"a": 1}


def test_a_check_compares_with_thresholds(api: Api, tube: str) -> None:
    put(api, tube, 1)
    found = api.get(f"/checks/tubes/{tube}?warn=ready>0&crit=ready>10,oldest>5m")
    assert (found["status"], found["code"], found["message"]) == ("warning", 1, "ready is 1 (ready>0)")
    assert found["metrics"]["jobs"] == 1
    assert api.get("/checks/journal?crit=size<1kb")["code"] in (0, 2)
    for wrong in ("ready", "nothing>1", "oldest>soon", "ready>many"):
        assert api.refused("GET", f"/checks/tubes/{tube}", params={"warn": wrong}) == (400, "BADREQUEST")


def test_a_job_of_a_disque_tube_has_the_nodes_with_copies(api: Api, tube: str) -> None:
    api.post("/tubes", {"name": f"{tube}-copied", "type": "disque"})
    job = api.post(f"/tubes/{tube}-copied/jobs", {"body": 1})
    (node,) = api.get("/cluster/nodes")["nodes"]
    assert api.get(job["url"].removeprefix("/api/v1"))["copies"] == [{"node": node["id"], "has_ack": False}]
    job = api.post(f"/tubes/{tube}/jobs", {"body": 1})
    assert "copies" not in api.get(job["url"].removeprefix("/api/v1"))


def test_the_epoch_of_a_node_is_no_flag() -> None:
    node = node_of("77764aa047a51c809a0fc3bb5d40cca7699e4033 127.0.0.1:7711 nomem,epoch=3 0 0 connected")
    assert (node["flags"], node["epoch"], node["reachable"]) == (["nomem"], 3, True)
    node = node_of("77764aa047a51c809a0fc3bb5d40cca7699e4033 127.0.0.1:7711 myself 0 0 connected")
    assert (node["flags"], node["epoch"], node["is_connected_to"]) == (["myself"], 0, True)
