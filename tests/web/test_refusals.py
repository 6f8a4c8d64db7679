"""Wrong, hostile and too large requests: each is refused with a status and a code, and harms no other request."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock.core.errors import CommandError
from penstock.web.refusals import OWN_CODES, STATUS_BY_CODE

from .http_api import Api, serving

JSON = {"Content-Type": "application/json"}
REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference" / "http.md"


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[",
        b"nonsense",
        b'{"body":}',
        b'{"body":1,}',
        b'{"body":1} 2',
        b'{"body":NaN}',
        b'{"body":-Infinity}',
        b'{"body":1,"body":2}',
        b'{"body":1,"headers":{"a":"1","a":"2"}}',
        b'{"jobs":[{"body":1,}]}',
        b'{"jobs":[{"body":1} {"body":2}]}',
        b'{"body":"\xff"}',
        b'{"body":"\x01"}',
        b'{"body' + b"[" * 100_000,
        b'{"body":' + b"[" * 100_000,
        b'{"delay":' + b"9" * 10_000 + b"}",
        b'{"body":' + b"9" * 10_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda text: text[:20].decode("latin-1"),
)
def test_malformed_json_is_refused(api: Api, tube: str, text: bytes) -> None:
    assert api.refused("POST", f"/tubes/{tube}/jobs", content=text, headers=JSON) == (400, "BADJSON")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"body": 1, "unknown": 2},
        {"body": 1, "delay": -1},
        {"body": 1, "delay": "soon"},
        {"body": 1, "delay": "forever"},
        {"body": 1, "delay": True},
        {"body": 1, "delay": 10**30},
        {"body": 1, "priority": 1.5},
        {"body": 1, "priority": 2**31},
        {"body": 1, "headers": {"a": 1}},
        {"body": 1, "headers": []},
        {"body": 1, "as": "text"},
        {"body": "?", "as": "base64"},
        {"body": 1, "once": "yes"},
        {"body": 1, "jobs": []},
        {"jobs": []},
        {"jobs": [1]},
        {"jobs": [{"body": 1}], "timeout": 1},
        {"jobs": [{"delay": 1}]},
        {"body": 1, "timeout": 1e9},
        [],
        "text",
        None,
    ],
    ids=str,
)
def test_wrong_fields_are_refused(api: Api, tube: str, body: Any) -> None:
    content = json.dumps(body).encode()
    assert api.refused("POST", f"/tubes/{tube}/jobs", content=content, headers=JSON) == (400, "BADREQUEST")


def test_the_message_names_the_wrong_field(api: Api, tube: str) -> None:
    answer = api.http.post(f"/tubes/{tube}/jobs", json={"jobs": [{"body": 1}, {"body": 1, "delay": "soon"}]})
    assert answer.json()["error"]["message"].startswith("the body.jobs[1].delay must be a duration")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "NOTFOUND"),
        ("GET", "/tubes/", 200, ""),
        ("GET", "/tubes//stats", 404, "NOTFOUND"),
        ("PUT", "/tubes", 405, "BADMETHOD"),
        ("GET", "/tubes?limit=0", 400, "BADREQUEST"),
        ("GET", "/tubes?limit=x", 400, "BADREQUEST"),
        ("GET", "/tubes?limit=1&limit=2", 400, "BADREQUEST"),
        ("GET", "/tubes?unknown=1", 400, "BADREQUEST"),
        ("GET", "/tubes?sort=nothing", 400, "BADREQUEST"),
        ("GET", "/tubes/unknown", 404, "NOTUBE"),
        ("GET", "/jobs/nonsense", 400, "BADID"),
        ("GET", "/jobs/D-77764aa0-6YXdE7ZcWR_phc0TtlxZH-Ln-ffff", 400, "BADID"),
        ("GET", "/jobs?state=nonsense", 400, "BADREQUEST"),
        ("GET", "/events?topics=nonsense", 400, "BADREQUEST"),
        ("GET", "/journal?position=999999999", 400, "RANGE"),
        ("DELETE", "/clients/999999", 404, "NOTFOUND"),
        ("DELETE", "/clients/nonsense", 404, "NOTFOUND"),
        ("DELETE", "/sessions/nonsense", 409, "NOSESSION"),
        ("DELETE", "/sessions/00000000000000000000000000000000", 409, "NOSESSION"),
    ],
)
def test_refusals_have_stable_codes(api: Api, method: str, path: str, status: int, code: str) -> None:
    if code:
        assert api.refused(method, path) == (status, code)
    else:
        api.call(method, path, status=status)


def test_the_content_type_must_be_json(api: Api) -> None:
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {"Content-Type": media}
        assert api.refused("POST", "/tubes", content=b'{"name":"x"}', headers=headers) == (415, "BADMEDIA")
    assert api.refused("POST", "/tubes", content=b'{"name":"x"}') == (415, "BADMEDIA")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(node: Any) -> None:
    with serving(node.port, request_bytes_max=1_000) as api:
        long = json.dumps({"body": "x" * 2_000}).encode()
        assert api.refused("POST", "/tubes/a/jobs", content=long, headers=JSON) == (413, "REQUESTTOOBIG")
        # The same without a length: in chunks.
        chunks = (long[at : at + 100] for at in range(0, len(long), 100))
        assert api.refused("POST", "/tubes/a/jobs", content=chunks, headers=JSON) == (413, "REQUESTTOOBIG")
        head = b"POST /api/v1/tubes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += b"Content-Length: 99999999999999\r\n\r\n"
        assert api.raw(head)[0] == 413


NAMES = [
    b"a/b",
    b"a#b",
    b"a%b",
    b"a?b",
    b"a b",
    b"..",
    b".",
    b"\xff\xfe",
    b"\x00",
    "ü".encode(),
    b'"<script>',
    b"a" * 5_000,
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:12]))
def test_a_tube_can_have_any_name(api: Api, name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    made = api.call("POST", "/tubes", content=json.dumps({"name": text}).encode(), headers=JSON)
    assert made["name"] == text
    path = b"/api/v1/tubes/" + quote(name, safe="").replace(".", "%2E").encode()
    status, body = api.raw_get(path)
    assert status == 200 and json.loads(body)["name"] == text
    status, body = api.raw_get(made["url"].encode())
    assert status == 200 and json.loads(body)["url"] == made["url"]
    assert text in [row["name"] for row in api.get("/tubes?limit=1000")["tubes"]]
    head = b"DELETE " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert api.raw(head)[0] == 204


@pytest.mark.parametrize(
    "path",
    [
        b"/api/v1/jobs/%00",
        b"/api/v1/jobs/%ff%fe",
        b"/api/v1/jobs/a%2Fb",
        b"/api/v1/jobs/emails%23%ff",
        b"/api/v1/jobs/%",
    ],
)
def test_a_hostile_id_is_no_job(api: Api, path: bytes) -> None:
    status, body = api.raw_get(path)
    assert (status, json.loads(body)["error"]["code"]) in [(400, "BADID"), (404, "NOTUBE"), (404, "NOJOB")]


@pytest.mark.parametrize("path", [b"/../../etc/passwd", b"//api/v1", b"/api/v1x", b"/api", b"/API/V1", b"/%61pi/v1x"])
def test_paths_outside_of_the_api_do_not_exist(api: Api, path: bytes) -> None:
    assert api.raw_get(path)[0] == 404


def test_every_response_has_the_security_headers(api: Api) -> None:
    for path in ("", "/tubes", "/nothing", "/docs", "/events"):
        with api.http.stream("GET", path) as answer:
            headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"
        assert "no-store" in headers["cache-control"] or "private" in headers["cache-control"]
        assert "server" not in headers and "access-control-allow-origin" not in headers


def test_head_has_the_headers_of_get(api: Api) -> None:
    answer = api.http.head("/overview")
    assert answer.status_code == 200 and answer.content == b"" and int(answer.headers["content-length"]) > 20
    assert api.http.put("/tubes").headers["allow"] == "GET, POST, HEAD"


def test_every_code_has_a_status_and_is_documented() -> None:
    text = REFERENCE.read_text()
    documented = set(re.findall(r"`([A-Z]{3,})`", text))
    assert set(OWN_CODES) <= documented
    codes = {each.code for each in CommandError.__subclasses__() if isinstance(each.code, str)}
    for code in codes | set(STATUS_BY_CODE):
        assert 400 <= STATUS_BY_CODE.get(code, 400) < 600
