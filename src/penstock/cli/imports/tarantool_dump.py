"""A dump of a Tarantool as JSON lines: the rows of its queues, and of the catalogue that describes them.

    {"tarantool": "<uuid of the instance>"}                       the first line
    {"space": "_queue", "tuple_base64": "<msgpack>"}              one line for each row of _queue, _space, _index
    {"space": "emails", "tuple": [1, "r", {"to": "ann"}]}         and the spaces with the tasks
    {"end": 1234}                                                 the last line: the number of rows

`tuple_base64` is the row in msgpack, which preserves binary data, uuids and decimals. `tuple` is a row of JSON
values. The rows of a space are in the order of its primary key. docs/how-to/moving-from-tarantool.md has the Lua code
that writes a dump.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from penstock.cli.errors import ERROR
from penstock.cli.imports.json_lines import LINE_BYTES_MAX, scan_lines
from penstock.cli.imports.tarantool_spaces import BadSource, Row, Space, read_spaces
from penstock.core.errors import ProtocolError, WrongType
from penstock.wire.msgpack import Reader, pack, unpack

_CATALOGUE: Final = ("_space", "_index")


class TarantoolDump:
    """A dump. Opening it reads it completely, so that a damaged dump is refused before any job is put."""

    id: str
    label: str
    spaces: dict[str, Space]

    def __init__(self, file: BinaryIO, label: str, progress: Callable[[int, int], None]) -> None:
        self._file = file
        self.label = label
        self._offsets: dict[str, array[int]] = {}
        self._read_all(progress)
        catalogue: dict[str, list[Any]] = {name: self._values(name) for name in _CATALOGUE}
        try:
            self.spaces = read_spaces(catalogue["_space"], catalogue["_index"])
        except (LookupError, TypeError, KeyError):
            raise self._bad("the rows of _space or _index are not those of a Tarantool") from None
        for name in self._offsets.keys() - _CATALOGUE:
            # Spaces of tarantool/queue need no description, because the type of the tube determines their layout.
            self.spaces.setdefault(name, Space(-1, name))

    def rows(self, space: Space, after: Any = None) -> Iterator[Row]:
        """Yield the rows of a space in the order of the file, after a cursor."""
        offsets = self._offsets.get(space.name, array("q"))
        for number in range(0 if after is None else int(after) + 1, len(offsets)):
            yield Row(self._row_at(offsets[number]), number)

    def last(self, space: Space) -> bytes | None:
        """Return the last row of a space, or None if it is empty."""
        offsets = self._offsets.get(space.name)
        return self._row_at(offsets[-1]) if offsets else None

    def _values(self, name: str) -> list[Any]:
        return [unpack(row.raw) for row in self.rows(Space(-1, name))]

    def _read_all(self, progress: Callable[[int, int], None]) -> None:
        count, number, ended = 0, 0, False
        for number, end, line in scan_lines(self._file, progress):
            if line.strip():
                record = self._object(line, number)
                if number == 1:
                    if not isinstance(record.get("tarantool"), str):
                        raise self._bad(
                            'this is not a dump of Tarantool: it does not start with {"tarantool": "<uuid>"}'
                        )
                    self.id = record["tarantool"]
                elif ended:
                    raise self._bad(f"line {number} is after the end of the dump")
                elif "end" in record:
                    ended = record["end"] == count
                    if not ended:
                        raise self._bad(f"the dump has {count:,} rows, but its last line says {record['end']!r}")
                else:
                    self._row(record, f"line {number}")
                    self._offsets.setdefault(record["space"], array("q")).append(end - len(line))
                    count += 1
        if not ended:
            raise self._bad(f'the dump is incomplete: after line {number} there is no {{"end": {count}}}')

    def _row_at(self, offset: int) -> bytes:
        self._file.seek(offset)
        return self._row(self._object(self._file.readline(LINE_BYTES_MAX), 0), f"the line at byte {offset}")

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            end = "" if line.endswith(b"\n") else "; the dump ends within it"
            raise self._bad(f"line {number} is not a JSON object{end}")
        return record

    def _row(self, record: dict[str, Any], where: str) -> bytes:
        try:
            if isinstance(record.get("space"), str) and isinstance(record.get("tuple"), list):
                return pack(record["tuple"])
            if isinstance(record.get("space"), str) and isinstance(record.get("tuple_base64"), str):
                raw = base64.b64decode(record["tuple_base64"], validate=True)
                Reader(raw).length_of_array()
                return raw
        except (ValueError, WrongType, ProtocolError):
            pass
        raise self._bad(f'{where} is not a row: it needs "space", and "tuple" or "tuple_base64"')

    def _bad(self, why: str) -> BadSource:
        return BadSource(f"{self.label}: {why}", ERROR)
