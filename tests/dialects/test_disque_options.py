"""The options of ADDJOB and GETJOB: valid, missing, malformed, repeated and unknown values of each."""

from __future__ import annotations

import pytest

from .command_engine import CommandEngine

ADDJOB = {
    b"TTL": ("ERR TTL must be a number > 0", [b"0", b"-1", b"x", b"1.5", b"", b"99999999999999999999"]),
    b"RETRY": ("ERR RETRY time must be a non negative number", [b"-1", b"x", b"", b"99999999999999999999"]),
    b"DELAY": ("ERR DELAY time must be a non negative number", [b"-1", b"x", b"", b"99999999999999999999"]),
    b"REPLICATE": ("ERR REPLICATE must be between 1 and 65535", [b"0", b"-1", b"65536", b"x", b""]),
    b"MAXLEN": ("ERR MAXLEN must be a positive number", [b"0", b"-1", b"x", b"", b"9223372036854775808"]),
}


@pytest.fixture
def shop() -> CommandEngine:
    return CommandEngine()


def addjob(shop: CommandEngine, *words: bytes) -> bytes:
    return shop.ask(b"addjob", b"q", b"body", b"0", *words)


@pytest.mark.parametrize("name", ADDJOB)
@pytest.mark.parametrize("case", ["upper", "lower"])
def test_a_valid_option_is_accepted(shop: CommandEngine, name: bytes, case: str) -> None:
    assert addjob(shop, getattr(name, case)(), b"1").startswith(b"+D-")


def test_options_set_the_attributes_of_the_job(shop: CommandEngine) -> None:
    assert addjob(shop, b"TTL", b"100", b"RETRY", b"7", b"DELAY", b"3", b"ASYNC").startswith(b"+D-")
    (job,) = shop.engine.jobs.scan(0, 10)
    assert (job.expiry - shop.now, job.wake - shop.now) == (100_000, 3_000)
    assert addjob(shop, b"RETRY", b"0").startswith(b"+D-")
    assert [each.once for each in shop.engine.jobs.scan(0, 10)] == [False, True]


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, (_, words) in ADDJOB.items() for word in words])
def test_a_malformed_value_is_refused(shop: CommandEngine, name: bytes, word: bytes) -> None:
    assert addjob(shop, name, word) == f"-{ADDJOB[name][0]}\r\n".encode()
    assert shop.engine.jobs.count == 0


@pytest.mark.parametrize("name", ADDJOB)
def test_a_missing_value_is_a_syntax_error(shop: CommandEngine, name: bytes) -> None:
    assert addjob(shop, name) == addjob(shop, b"ASYNC", name) == b"-ERR syntax error\r\n"


@pytest.mark.parametrize("name", ADDJOB)
def test_the_last_of_a_repeated_option_counts_and_every_one_is_checked(shop: CommandEngine, name: bytes) -> None:
    assert addjob(shop, name, b"2" if name != b"REPLICATE" else b"9", name, b"1").startswith(b"+D-")
    assert addjob(shop, name, b"x", name, b"1").startswith(b"-ERR")


@pytest.mark.parametrize("words", [(b"NOPE",), (b"NOPE", b"1"), (b"",), (b"TTL", b"1", b"1"), (b"ASYNC", b"1")])
def test_an_unknown_option_is_a_syntax_error(shop: CommandEngine, words: tuple[bytes, ...]) -> None:
    assert addjob(shop, *words) == b"-ERR syntax error\r\n"


@pytest.mark.parametrize("timeout", [b"x", b"", b"1.5"])
def test_a_malformed_timeout_is_refused(shop: CommandEngine, timeout: bytes) -> None:
    assert shop.ask(b"addjob", b"q", b"body", timeout).startswith(b"-ERR")


def test_a_delay_beyond_the_ttl_is_refused(shop: CommandEngine) -> None:
    assert addjob(shop, b"TTL", b"5", b"DELAY", b"5").startswith(b"-ERR The specified DELAY is greater than TTL")
    assert addjob(shop, b"TTL", b"5", b"DELAY", b"4").startswith(b"+D-")


@pytest.mark.parametrize(
    "words",
    [
        (b"NOHANG", b"FROM", b"q"),
        (b"nohang", b"count", b"2", b"from", b"q"),
        (b"TIMEOUT", b"1", b"NOHANG", b"WITHCOUNTERS", b"FROM", b"q", b"r"),
        (b"COUNT", b"1", b"COUNT", b"2", b"NOHANG", b"NOHANG", b"FROM", b"q"),
    ],
)
def test_valid_options_of_getjob(shop: CommandEngine, words: tuple[bytes, ...]) -> None:
    addjob(shop)
    assert shop.ask(b"getjob", *words).startswith(b"*1\r\n")


@pytest.mark.parametrize(
    "words",
    [
        (b"q",),
        (b"FROM",),
        (b"NOHANG",),
        (b"COUNT", b"FROM", b"q"),
        (b"COUNT", b"0", b"FROM", b"q"),
        (b"COUNT", b"x", b"FROM", b"q"),
        (b"TIMEOUT", b"x", b"FROM", b"q"),
        (b"TIMEOUT", b"-1", b"FROM", b"q"),
        (b"NOPE", b"FROM", b"q"),
    ],
)
def test_malformed_options_of_getjob_are_refused(shop: CommandEngine, words: tuple[bytes, ...]) -> None:
    addjob(shop)
    assert shop.ask(b"getjob", *words).startswith(b"-ERR")
    assert shop.caller.wait is None
