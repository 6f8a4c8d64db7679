"""The decision to move to the node that most jobs come from."""

from penstock.client.addresses import Addresses
from penstock.client.job_origins import JobOrigins

HERE, THERE = "aaaaaaaa", "bbbbbbbb"


def ids(maker: str, count: int) -> list[str]:
    return [f"D-{maker}-{number:024}-05a1" for number in range(count)]


def test_a_move_needs_a_majority_of_a_hundred_jobs() -> None:
    sources = JobOrigins()
    sources.took(ids(THERE, 99))
    assert sources.main() == ""
    sources.took(ids(HERE, 51))
    assert sources.main() == THERE
    sources.took(ids(HERE, 48))
    assert sources.main() == ""


def test_old_jobs_count_less_than_recent_ones() -> None:
    sources = JobOrigins()
    sources.took(ids(THERE, 150))
    for _ in range(20):
        sources.took(ids(HERE, 10))
    assert sources.main() == HERE


def test_a_client_that_has_moved_stays_for_a_while_and_counts_from_zero() -> None:
    sources = JobOrigins()
    assert sources.may_move(5.0)
    sources.took(ids(THERE, 100))
    sources.moved(5.0)
    assert sources.main() == "" and not sources.may_move(14.0) and sources.may_move(15.0)


def test_a_client_does_not_move_to_its_own_or_an_unknown_or_a_leaving_node() -> None:
    addresses = Addresses((("one", 7711), ("two", 7711)), learns=True)
    assert addresses.of_node(THERE) is None
    nodes = [[name.encode() * 5, host, b"7711", priority] for name, host, priority in (
        (HERE, b"10.0.0.1", b"1"), (THERE, b"10.0.0.2", b"1"), ("cccccccc", b"10.0.0.3", b"100")
    )]  # fmt: skip
    addresses.learn([1, HERE.encode() * 5, *nodes])
    assert addresses.of_node(THERE) == ("10.0.0.2", 7711)
    assert addresses.of_node(HERE) is None and addresses.of_node("cccccccc") is None
