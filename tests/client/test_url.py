"""The URL of a server: its parts, its defaults and its errors."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.client.url import Target, pieces, target
from penstock.core.errors import BadUrl, CommandError

LOCAL = ("127.0.0.1", 7711)

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("penstock://", {"seeds": (LOCAL,), "user": "", "password": b"", "tls": None, "name": ""}),
    ("PENSTOCK://127.0.0.1/", {"seeds": (LOCAL,)}),
    ("penstock://h", {"seeds": (("h", 7711),)}),
    ("penstock://h:1", {"seeds": (("h", 1),)}),
    ("penstock://a,b:2,[::1]:3,[fe80::1]", {"seeds": (("a", 7711), ("b", 2), ("::1", 3), ("fe80::1", 7711))}),
    ("penstock://:secret@h", {"user": "", "password": b"secret"}),
    ("penstock://me@h", {"user": "me", "password": b""}),
    ("penstock://m%40e:p%3Aa%25s%2Fs%40@h", {"user": "m@e", "password": b"p:a%s/s@"}),
    ("penstock://me:a:b@h", {"user": "me", "password": b"a:b"}),
    ("penstock://h?name=worker-1&grace=30s", {"name": "worker-1", "grace_ms": 30_000}),
    ("penstock://h?grace=0&timeout=forever&retry_for=2m", {"grace_ms": 0, "answer_s": None, "retry_s": 120}),
    (
        "penstock://h?connect_timeout=250ms&timeout=1.5&retry_for=-1",
        {"connect_s": 0.25, "answer_s": 1.5, "retry_s": None},
    ),
    ("penstock://h?tls=0", {"tls": None}),
    ("penstock://h", {"grace_ms": 10_000, "connect_s": 5, "answer_s": 60, "retry_s": 20}),
]

BAD: list[tuple[str, str]] = [
    ("", "does not begin with penstock://"),
    ("h:7711", "does not begin with penstock://"),
    ("redis://h", "begins with redis://"),
    ("penstock:/h", "does not begin"),
    ("penstock://h:0", "a port is"),
    ("penstock://h:65536", "a port is"),
    ("penstock://h:x", "a port is"),
    ("penstock://h:", "a port is"),
    ("penstock://h:²", "a port is"),
    ("penstock://a,,b", "an empty host"),
    ("penstock://a,", "an empty host"),
    ("penstock://::1", "in brackets"),
    ("penstock://[::1", "in brackets"),
    ("penstock://[::1]x", "in brackets"),
    ("penstock://h/0", "nothing behind its hosts"),
    ("penstock://h#x", "nothing behind its hosts"),
    ("penstock://u:100%@h", "write % as %25"),
    ("penstock://u:%zz@h", "write % as %25"),
    ("penstock://u%ff@h", "not UTF-8"),
    ("penstock://h?tsl=1", "did you mean tls?"),
    ("penstock://h?colour=red", "there are tls"),
    ("penstock://h?tls", "read like"),
    ("penstock://h?tls=maybe", "1 or 0"),
    ("penstock://h?grace=soon", "a time like"),
    ("penstock://h?grace=forever", "end some time"),
    ("penstock://h?connect_timeout=0", "more than 0"),
    ("penstock://h?tls=0&ca=x.pem", "for TLS"),
    ("penstock://h?key=x.pem", "give cert as well"),
    ("penstock://h?ca=/no/such/file.pem", "cannot be used"),
]


@pytest.mark.parametrize(("url", "meant"), GOOD)
def test_the_parts_of_a_url_are_read(url: str, meant: dict[str, Any]) -> None:
    found = target(url)
    assert {field: getattr(found, field) for field in meant} == meant


@pytest.mark.parametrize(("url", "told"), BAD)
def test_the_error_of_a_wrong_url_is_one_sentence(url: str, told: str) -> None:
    with pytest.raises(CommandError) as refused:
        target(url)
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_arguments_have_precedence_over_the_url(tmp_path: Path) -> None:
    found = target(
        "penstock://u:p@h?grace=1&name=n", user="other", password="pass", grace=2.5, name="m", timeout=math.inf
    )
    assert (found.user, found.password, found.grace_ms, found.name, found.answer_s) == (
        "other",
        b"pass",
        2_500,
        "m",
        None,
    )
    with pytest.raises(CommandError):
        target("penstock://h", grace=-1)
    with pytest.raises(BadUrl):
        target("penstock://h", ca=tmp_path / "missing.pem")
    with pytest.raises(CommandError, match="is text"):
        target(7711)  # type: ignore[arg-type]


def test_the_environment_has_the_default_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "penstock://from-the-environment:1")
    assert target().seeds == (("from-the-environment", 1),)
    assert target("penstock://h").seeds == (("h", 7711),)
    monkeypatch.delenv("PENSTOCK_URL")
    assert target().seeds == (LOCAL,)


def test_tls_checks_certificates_unless_a_context_says_otherwise() -> None:
    for found in (target("penstock://h?tls=1"), target("penstock://h", tls=True)):
        assert found.tls is not None and found.tls.verify_mode is ssl.CERT_REQUIRED and found.tls.check_hostname
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert target("penstock://h", tls=own).tls is own
    assert target("penstock://h?tls=1", tls=False).tls is None


@pytest.mark.parametrize("host", ["a" * 64, "ex..ample", ".", "%00", "a\ud800"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(BadUrl):
        target(f"penstock://{host}:7711")


@pytest.mark.parametrize("what", ["user", "password", "name"])
def test_a_url_that_is_not_text_is_refused(what: str) -> None:
    for value in ("\ud800", 7):
        with pytest.raises(CommandError, match=what):
            target("penstock://h", **{what: value})  # type: ignore[arg-type]


def test_a_password_is_not_shown() -> None:
    assert "secret" not in str(target("penstock://u:secret@h"))
    assert isinstance(target(), Target)


@pytest.mark.parametrize(
    "url", ["penstock://h", "penstock://a:p@s/s@h:1,i:2?tls=0&name=me", "PENSTOCK://:@[::1]:7?", "penstock://@h"]
)
def test_the_parts_of_a_url_give_the_url(url: str) -> None:
    assert str(pieces(url)) == url
    assert target(str(pieces(url))) == target(url)
