"""Whether a client should go to the node that its jobs come from."""

from penstock.client.addresses import Addresses
from penstock.client.sources import Sources

HERE, THERE = "aaaaaaaa", "bbbbbbbb"


def ids(maker: str, count: int) -> list[str]:
    return [f"D-{maker}-{number:024}-05a1" for number in range(count)]


def test_most_of_a_hundred_have_to_come_from_one_node() -> None:
    sources = Sources()
    sources.took(ids(THERE, 99))
    assert sources.main() == ""
    sources.took(ids(HERE, 51))
    assert sources.main() == THERE
    sources.took(ids(HERE, 48))
    assert sources.main() == ""


def test_what_was_long_ago_counts_less() -> None:
    sources = Sources()
    sources.took(ids(THERE, 150))
    for _ in range(20):
        sources.took(ids(HERE, 10))
    assert sources.main() == HERE


def test_who_has_moved_stays_a_while_and_counts_anew() -> None:
    sources = Sources()
    assert sources.may_move(5.0)
    sources.took(ids(THERE, 100))
    sources.moved(5.0)
    assert sources.main() == "" and not sources.may_move(14.0) and sources.may_move(15.0)


def test_a_node_that_is_here_unknown_or_unwanted_is_nowhere_to_go() -> None:
    addresses = Addresses((("one", 7711), ("two", 7711)), learns=True)
    assert addresses.of_node(THERE) is None
    nodes = [[name.encode() * 5, host, b"7711", priority] for name, host, priority in (
        (HERE, b"10.0.0.1", b"1"), (THERE, b"10.0.0.2", b"1"), ("cccccccc", b"10.0.0.3", b"100")
    )]  # fmt: skip
    addresses.learn([1, HERE.encode() * 5, *nodes])
    assert addresses.of_node(THERE) == ("10.0.0.2", 7711)
    assert addresses.of_node(HERE) is None and addresses.of_node("cccccccc") is None
