"""The setting `xqueue`: spaces that a server creates at its start.

    [xqueue.jobs]                                           xqueue jobs '{"fields": {"status": 2}, ...}'
    format = [{name = "id", type = "unsigned"}, …]
    fields = {status = "status", runat = "runat"}
    features = {id = "auto_increment", ttl = true}

The left side is TOML, the right side is Disque's form. The options are those of `xqueue.upgrade`. If a space exists,
they change it: features can be switched, and fields can be added at the end of `format`.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.dialects.xqueue.options import XqueueError, read_options
from penstock.server.config.kinds import Collected, Refused


class XqueueSpaces(Collected[dict[str, Any]]):
    """The kind of the setting `xqueue`: the options of each space, by the name of the space."""

    annotation = "dict[str, dict[str, Any]]"
    allowed = "a name, then the options of xqueue.upgrade as JSON"

    def entry(self, words: list[str]) -> tuple[str, dict[str, Any]]:
        if len(words) != 2 or not words[0]:
            raise Refused(self.allowed)
        try:
            options = json.loads(words[1])
        except (ValueError, RecursionError):
            raise Refused(self.allowed) from None
        return self.toml_entry(words[0], options)

    def text(self, value: dict[str, dict[str, Any]]) -> str:
        return ", ".join(value)

    def toml_entry(self, name: str, value: object) -> tuple[str, dict[str, Any]]:
        if not isinstance(value, dict):
            raise Refused("a table for each space: format, fields, features and the like")
        try:
            read_options(value)
        except XqueueError as error:
            raise Refused(f"options of xqueue.upgrade ({name}: {error})") from None
        return name, value
