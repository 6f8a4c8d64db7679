"""The schema that clients load when they connect: `_vspace` and `_vindex`, the spaces and indexes that they may read.

Clients load the schema again when its version changes. Here the version never changes. A connected client sees a space
that was created later only if the client asks for it:

    tarantool-python   reads an unknown name by itself
    asynctnt           await conn.refetch_schema()
    net.box            connect again, or call box.space.NAME:select

The numbers of spaces do not change and are not reused, so an old schema is never wrong: each of its spaces is still
the same, has more fields at the end, or no longer exists.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.engine import Engine
from penstock.core.tube import Tube
from penstock.dialects.spaces.indexes import Index, Query, read_fields
from penstock.dialects.spaces.reading import ReadableSpace, Scan
from penstock.dialects.xqueue.formats import Field
from penstock.wire.msgpack import DEPTH_MAX, write_value

# The views, and the system spaces that they are views of: clients read either.
SPACES: Final = frozenset([280, 281])
INDEXES: Final = frozenset([288, 289])
# Tarantool's other system spaces, about users, functions, collations and so on. They are empty.
EMPTY: Final = frozenset([272, 276, 277, 296, 297, 304, 305, 312, 313, 320, 321])

# A client that connects loads at most this many spaces, and at most this many tubes are examined for them. Any other
# space can be found by name or number.
LISTED_MAX: Final = 10_000
_EXAMINED_MAX: Final = 100_000

_OWNER: Final = 1

_SPACE_FIELDS: Final = read_fields(
    "id:unsigned owner:unsigned name:string engine:string field_count:unsigned flags:map format:array"
)
_SPACE_INDEXES: Final = [
    Index(0, "primary", [0], _SPACE_FIELDS),
    Index(1, "owner", [1], _SPACE_FIELDS, False),
    Index(2, "name", [2], _SPACE_FIELDS),
]
_INDEX_FIELDS: Final = read_fields("id:unsigned iid:unsigned name:string type:string opts:map parts:array")
_INDEX_INDEXES: Final = [Index(0, "primary", [0, 1], _INDEX_FIELDS), Index(2, "name", [0, 2], _INDEX_FIELDS)]


class ReadableSpaces:
    """The spaces that one client may read."""

    def fixed(self) -> list[ReadableSpace]:
        """Return the spaces that exist on every server."""
        raise NotImplementedError

    def of_tube(self, tube: Tube) -> ReadableSpace | None:
        """Return the space of a tube, or None if the client may not read it."""
        raise NotImplementedError

    def by_name(self, name: bytes) -> ReadableSpace | None:
        """Return the space with a name, or None."""
        raise NotImplementedError

    def by_number(self, number: int) -> ReadableSpace | None:
        """Return the space with a number, or None."""
        raise NotImplementedError


class _SchemaSpace(ReadableSpace):
    _engine: Engine
    _readable: ReadableSpaces

    def __init__(
        self,
        name: str,
        number: int,
        fields: list[Field],
        indexes: list[Index],
        engine: Engine,
        readable: ReadableSpaces,
    ) -> None:
        super().__init__(name, number, fields, indexes)
        self.truncates = True  # A client that cannot load its schema does not connect.
        self._engine = engine
        self._readable = readable

    def advance(self, now: i64) -> None:
        """Do nothing: the schema has no timers."""

    def listed(self, query: Query) -> _Listed:
        """Start a scan over the spaces."""
        return _Listed(self._engine, self._readable, query.index.number == 0 and not query.descending)


class SchemaSpaces(_SchemaSpace):
    """The space `_vspace`. Its items are spaces."""

    def __init__(self, engine: Engine, readable: ReadableSpaces) -> None:
        super().__init__("_vspace", 281, _SPACE_FIELDS, _SPACE_INDEXES, engine, readable)

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, ReadableSpace)
        if field == 0:
            return item.number
        if field == 1:
            return _OWNER
        return item.name

    def write(self, writer: BytesWriter, item: object) -> None:
        assert isinstance(item, ReadableSpace)
        format: list[object] = []
        for field in item.fields:
            described: dict[object, object] = {"name": field.name, "type": field.type}
            if field.nullable:
                described["is_nullable"] = True
            format.append(described)
        flags: dict[object, object] = {}
        write_value(writer, [item.number, _OWNER, item.name, "memtx", 0, flags, format], DEPTH_MAX)

    def scan(self, query: Query) -> Scan:
        return self.listed(query)

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        if not query.exact or query.index.number == 1:
            return None
        value = query.key[0][1]
        space = self._readable.by_name(value) if query.index.number == 2 else self._readable.by_number(int(value))
        return [] if space is None else [space]


class SpaceIndex:
    """An index and its space."""

    space: ReadableSpace
    index: Index

    def __init__(self, space: ReadableSpace, index: Index) -> None:
        self.space = space
        self.index = index


class SchemaIndexes(_SchemaSpace):
    """The space `_vindex`. Its items are indexes of spaces."""

    def __init__(self, engine: Engine, readable: ReadableSpaces) -> None:
        super().__init__("_vindex", 289, _INDEX_FIELDS, _INDEX_INDEXES, engine, readable)

    def value(self, field: int, item: object) -> object:
        assert isinstance(item, SpaceIndex)
        if field == 0:
            return item.space.number
        return item.index.number if field == 1 else item.index.name

    def write(self, writer: BytesWriter, item: object) -> None:
        assert isinstance(item, SpaceIndex)
        index = item.index
        opts: dict[object, object] = {"unique": index.unique}
        write_value(
            writer, [item.space.number, index.number, index.name, "tree", opts, index.as_schema_parts()], DEPTH_MAX
        )

    def scan(self, query: Query) -> Scan:
        return _ListedIndexes(self.listed(query))

    def find_few(self, query: Query, now: i64) -> list[object] | None:
        if not query.exact:
            return None
        space = self._readable.by_number(int(query.key[0][1]))
        return [] if space is None else [SpaceIndex(space, index) for index in space.indexes]


class _Listed(Scan):
    """Scans the spaces that `_vspace` lists: the fixed ones, then tubes in the order of their creation.

    Queues of Disque clients are left out. There can be very many of them, and Tarantool clients do not read them.
    """

    _engine: Engine
    _readable: ReadableSpaces
    _cursor: int
    _found: int
    _examined: int

    def __init__(self, engine: Engine, readable: ReadableSpaces, ordered: bool) -> None:
        super().__init__(ordered)
        self._engine = engine
        self._readable = readable
        self._cursor = 0
        self._found = 0
        self._examined = 0

    def next(self, count: int) -> list[object]:
        found: list[object] = [] if self._examined else [*self._readable.fixed()]
        tubes, self._cursor = self._engine.scan_tubes(self._cursor, count)
        for tube in tubes:
            space = None if tube.policy.type == "disque" else self._readable.of_tube(tube)
            if space is not None:
                found.append(space)
        self._found += len(found)
        self._examined += count
        self.is_over = self._cursor == 0 or self._found >= LISTED_MAX or self._examined >= _EXAMINED_MAX
        return found


class _ListedIndexes(Scan):
    """Scans the indexes of all spaces that `_vspace` lists."""

    _spaces: _Listed

    def __init__(self, spaces: _Listed) -> None:
        super().__init__(spaces.ordered)
        self._spaces = spaces

    def next(self, count: int) -> list[object]:
        found: list[object] = []
        for space in self._spaces.next(max(1, count // 3)):
            assert isinstance(space, ReadableSpace)
            found.extend([SpaceIndex(space, index) for index in space.indexes])
        self.is_over = self._spaces.is_over
        return found
