"""Who may use the API: users, tokens, cookies, other origins, other machines, proxies."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.web.login_limit import FAILURES_MAX, LoginLimit
from penstock.web.origins import Proxies, is_loopback
from penstock.web.refusals import Refused
from tests.server.serving import Server

from .http_api import Api, serving

ADA = ("ada", "ada's secret")
READER = ("reader", "reading")


@pytest.fixture(scope="module")
def guarded(node_with_users: Server) -> Iterator[Api]:
    with serving(node_with_users.port) as api:
        api.post("/tubes", {"name": "mails"}, auth=ADA)
        api.post("/tubes", {"name": "other"}, auth=ADA)
        yield api


def test_a_node_with_users_needs_a_login(guarded: Api) -> None:
    answer = guarded.http.get("/tubes")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "NOAUTH")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert guarded.get("")["user"] is None
    assert guarded.refused("GET", "/tubes", auth=("ada", "wrong")) == (401, "WRONGPASS")
    assert guarded.refused("GET", "/tubes", auth=("nobody", "x")) == (401, "WRONGPASS")


@pytest.mark.parametrize(
    "value",
    ["Basic", "Basic !", "Basic YQ==", "Basic /w==", "Bearer", "Bearer x", "Bearer pst1.a.b", "Digest x", "x" * 9_000],
)
def test_malformed_credentials_are_refused(guarded: Api, value: str) -> None:
    guarded.app.state.api.logins._full_until.clear()
    assert guarded.refused("GET", "/tubes", headers={"Authorization": value}) == (401, "WRONGPASS")


def test_the_node_decides_what_a_user_may_do(guarded: Api) -> None:
    me = guarded.get("/me", auth=READER)
    assert (me["user"], me["classes"], me["tubes"], me["authenticated_by"]) == ("reader", ["read"], ["mail*"], "basic")
    assert [row["name"] for row in guarded.get("/tubes", auth=READER)["tubes"]] == ["mails"]
    assert guarded.get("/overview", auth=ADA)["tubes"] == 2
    assert guarded.refused("GET", "/tubes/other", auth=READER) == (403, "NOPERM")
    assert guarded.refused("POST", "/tubes/mails/jobs", {"body": 1}, auth=READER) == (403, "NOPERM")
    assert guarded.refused("GET", "/clients", auth=READER) == (403, "NOPERM")
    with guarded.events("?topics=tubes", auth=READER) as events:
        name, data = next(events)
        assert name == "tubes" and [row["name"] for row in data["tubes"]] == ["mails"]


def test_a_token_has_the_rights_it_was_created_with(guarded: Api) -> None:
    made = guarded.post("/tokens", {"ttl": "1h", "commands": ["read"], "tubes": ["mails"], "name": "x"}, auth=ADA)
    bearer = {"Authorization": f"Bearer {made['token']}"}
    me = guarded.get("/me", headers=bearer)
    assert (me["user"], me["classes"], me["tubes"], me["token_name"]) == ("ada", ["read"], ["mails"], "x")
    assert me["expires_ms"] == made["expires_ms"]
    assert guarded.refused("POST", "/tubes", {"name": "more"}, headers=bearer) == (403, "NOPERM")
    assert guarded.refused("POST", "/tokens", {"tubes": ["a,b"]}, auth=ADA) == (400, "BADREQUEST")
    changed = made["token"][:-2] + ("aa" if made["token"][-2:] != "aa" else "bb")
    assert guarded.refused("GET", "/me", headers={"Authorization": f"Bearer {changed}"}) == (401, "WRONGPASS")


def test_a_cookie_needs_the_csrf_token_for_changes(guarded: Api) -> None:
    answer = guarded.http.post("/login", json={"user": "ada", "password": "ada's secret"})
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"]
    guarded.http.cookies.clear()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "secret" not in cookie
    me = answer.json()
    assert me["user"] == "ada" and me["authenticated_by"] == "cookie"
    signed_in = {"Cookie": cookie.partition(";")[0]}
    assert guarded.get("/me", headers=signed_in)["csrf_token"] == me["csrf_token"]
    assert guarded.refused("POST", "/tubes/mails/jobs", {"body": 1}, headers=signed_in) == (403, "CSRF")
    wrong = {**signed_in, "X-CSRF-Token": "0" * 32}
    assert guarded.refused("POST", "/tubes/mails/jobs", {"body": 1}, headers=wrong) == (403, "CSRF")
    guarded.post("/tubes/mails/jobs", {"body": 1}, headers={**signed_in, "X-CSRF-Token": me["csrf_token"]})
    out = guarded.http.post("/logout", headers={**signed_in, "X-CSRF-Token": me["csrf_token"]})
    assert out.status_code == 204 and "Max-Age=0" in out.headers["set-cookie"]
    assert guarded.refused("POST", "/login", {"user": "ada", "password": "wrong"}) == (401, "WRONGPASS")


def test_failed_logins_are_limited_per_address(node_with_users: Server) -> None:
    with serving(node_with_users.port) as api:
        for number in range(FAILURES_MAX):
            status, _ = api.refused("GET", "/tubes", auth=("ada", f"guess {number}"))
            assert status in (401, 429)  # The node has a limit of its own.
            api.app.state.api.logins.failed("127.0.0.1")
        answer = api.http.get("/tubes", auth=ADA)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0


def test_the_limit_counts_networks_and_forgets() -> None:
    limit = LoginLimit()
    for number in range(FAILURES_MAX):
        limit.check("2001:db8::1")
        limit.failed(f"2001:db8::{number}")
    with pytest.raises(Refused):
        limit.check("2001:db8::ffff")
    limit.check("2001:db8:0:1::1")
    for number in range(20_000):
        limit.failed(f"10.1.{number // 250}.{number % 250}")
    assert len(limit) == 10_000


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "bad host"}, 400),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "192.0.2.1"}, 200),
    ],
)
def test_the_api_answers_only_to_its_own_names(api: Api, headers: dict[str, str], status: int) -> None:
    assert api.http.get("/tubes", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "https://evil.example"}, "BADORIGIN"),
        ({"Origin": "null"}, "BADORIGIN"),
        ({"Sec-Fetch-Site": "cross-site"}, "BADORIGIN"),
        ({"Sec-Fetch-Site": "same-site"}, "BADORIGIN"),
        ({"Sec-Fetch-Site": "same-origin"}, ""),
        ({"Origin": "SELF"}, ""),
    ],
)
def test_pages_of_other_origins_change_nothing(api: Api, headers: dict[str, str], code: str) -> None:
    headers = {name: value.replace("SELF", api.url) for name, value in headers.items()}
    if code:
        assert api.refused("POST", "/tubes", {"name": "x"}, headers=headers) == (403, code)
        api.call("GET", "/tubes", headers=headers)
    else:
        api.post("/tubes", {"name": "x"}, headers=headers)


def test_cors_is_off_and_can_be_on(node: Server, api: Api) -> None:
    page = {"Origin": "https://app.example"}
    ask = {**page, "Access-Control-Request-Method": "POST"}
    assert api.http.options("/tubes", headers=ask).status_code == 405
    with serving(node.port, cors_origins=("https://app.example",)) as open_api:
        allowed = open_api.http.options("/tubes", headers=ask)
        assert allowed.status_code == 204 and allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in allowed.headers
        open_api.post("/tubes", {"name": "cors"}, headers=page)
        other = open_api.http.get("/tubes", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers and other.headers["vary"] == "Origin"


def test_a_node_without_users_is_for_this_machine_only(node: Server) -> None:
    with serving(node.port, trusted_proxies=("127.0.0.1/32",)) as api:
        far = {"X-Forwarded-For": "203.0.113.7"}
        assert api.refused("GET", "/tubes", headers=far) == (401, "NOAUTH")
        api.get("/tubes", headers={"X-Forwarded-For": "127.0.0.2"})


def test_only_trusted_proxies_name_the_client() -> None:
    def client(peer: str, forwarded: str, *trusted: str) -> Any:
        scope: dict[str, Any] = {"client": (peer, 1), "scheme": "http"}
        headers = {b"x-forwarded-for": forwarded.encode(), b"x-forwarded-proto": b"https"}
        Proxies(trusted).apply(scope, headers)
        return scope["penstock.client"], scope["scheme"]

    assert client("10.0.0.1", "203.0.113.7") == ("10.0.0.1", "http")
    assert client("10.0.0.1", "203.0.113.7", "10.0.0.0/8") == ("203.0.113.7", "https")
    assert client("10.0.0.1", "127.0.0.1, 203.0.113.7, 10.0.0.2", "10.0.0.0/8") == ("203.0.113.7", "https")
    assert client("10.0.0.1", "nonsense", "10.0.0.0/8") == ("10.0.0.1", "https")
    assert is_loopback("::ffff:127.0.0.1") and not is_loopback("10.0.0.1")


def test_a_path_prefix(node: Server) -> None:
    with serving(node.port, path_prefix="/queue") as api:
        assert api.http.get("/tubes").status_code == 404
        answer = api.http.get(f"{api.url}/queue/api/v1")
        assert answer.json()["links"]["tubes"] == "/queue/api/v1/tubes"
        assert api.http.get(f"{api.url}/queue/api/v1/openapi.json").json()["servers"][0]["url"] == "/queue/api/v1"
        assert api.http.get(f"{api.url}/livez").status_code == 200


def test_the_access_log_has_no_secrets(node_with_users: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.web.access"), serving(node_with_users.port, access_log=True) as api:
        api.get("/tubes?match=private*", auth=ADA)
        api.refused("GET", "/jobs/secret%23id", auth=ADA)
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.web.access"]
    assert lines[0].startswith("request: client=127.0.0.1 method=GET route=/tubes status=200 ms=")
    assert "route=/jobs/{id} status=4" in lines[1]
    assert not any("secret" in line or "private" in line for line in lines)


def test_probes_and_metrics(node: Server) -> None:
    with serving(node.port) as api:
        probe = {"Host": "any.example"}
        assert api.http.get(f"{api.url}/livez", headers=probe).text == "ok\n"
        assert api.http.get(f"{api.url}/readyz", headers=probe).text == "ok\n"
        api.get("/tubes")
        text = api.http.get(f"{api.url}/metrics").text
        assert 'penstock_api_requests_total{method="GET",route="/tubes",status="200"} 1' in text
        assert 'penstock_api_request_seconds_count{route="/tubes"} 1' in text
        assert "penstock_api_streams 0" in text
    with serving(1) as lost:
        assert lost.http.get(f"{lost.url}/livez").status_code == 200
        assert lost.http.get(f"{lost.url}/readyz").status_code == 503
        assert lost.refused("GET", "/tubes") == (503, "NOSERVER")
