"""Input of clients for the parsers: correct and incorrect, and cut into pieces."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from penstock.wire.resp import RespParser

# Small enough that generated examples reach it.
BULK_MAX = 5_000
BUFFER_MAX = 1 << 30
EVERYTHING = 1 << 40


def encode(words: Iterable[bytes]) -> bytes:
    """Encode a command."""
    words = list(words)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def read(
    pieces: Iterable[bytes], bulk_max: int = BULK_MAX, known: bool = True, at_once: int = EVERYTHING
) -> tuple[list[list[bytes]], bytes]:
    """Return the commands that the parser finds in these pieces, and its error."""
    parser = RespParser(bulk_max, BUFFER_MAX, known)
    commands: list[list[bytes]] = []
    for piece in pieces:
        parser.feed(piece)
        commands += parser.parse(at_once)
        while parser.has_more:
            commands += parser.parse(at_once)
    return commands, bytes(parser.error).removeprefix(b"Protocol error: ")


def bytewise(data: bytes, first: int = 0) -> list[bytes]:
    """Cut bytes into single bytes, from a position on."""
    return [data[:first], *(data[at : at + 1] for at in range(first, len(data)))]


# A word of a command: mostly short, long enough for every way to read a length, and with line ends in it.
words = st.one_of(
    st.sampled_from([b"PING", b"ADDJOB", b"q", b"", b"\r\n", b"a\r\nb", b"\r", b"\n", b"$1\r\nx\r\n", b"*1\r\n"]),
    st.binary(max_size=20),
    st.integers(4_090, BULK_MAX).map(lambda length: b"x" * length),
)
commands = st.lists(words, min_size=1, max_size=6)

_typed = st.text(alphabet="ab \t\"'\\xnr019\0é", max_size=20).map(lambda text: text.encode())
_tokens = st.sampled_from(
    [
        *(b"*", b"$", b"\r\n", b"\n", b"\r", b"-1", b"+1", b" ", b"0", b"1", b"2", b"65", b"1048576", b"1048577"),
        *(b"99999999999", b"9" * 5_000, b"%1\r\n", b"~1\r\n", b">1\r\n", b"_\r\n", b"#t\r\n", b"(123\r\n"),
        *(b"PING", b'"', b"'", b"\\", b"\x00", b"\xff", b"\x1b", b"\x16\x03\x01", b"\xce\x00\x00"),
    ]
)
_too_long = st.integers(BULK_MAX + 1, BULK_MAX + 3).map(lambda length: b"y" * length)
streams = st.lists(
    st.one_of(
        commands.map(encode),
        commands.map(encode),
        st.lists(words | _too_long, min_size=1, max_size=4).map(encode),
        _typed.map(lambda text: text + b"\n"),
        _typed.map(lambda text: text + b"\r\n"),
        _tokens,
        st.binary(max_size=12),
    ),
    max_size=12,
).map(b"".join)


@st.composite
def pieces(draw: st.DrawFn, source: st.SearchStrategy[bytes] = streams) -> tuple[bytes, list[bytes]]:
    """Bytes, and a way in which the network may cut them."""
    data = draw(source)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return data, [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
