"""The formats of a space: the fields of its rows, and how they can change while the space is in use.

A space starts with format 0. An upgrade that adds fields makes the next format: the fields of the previous format,
followed by the new ones. So every format is a prefix of the newest one, and a list of lengths describes all formats:

    number  fields                      length
    0       id status data              3
    1       id status data note         4
    2       id status data note a b     6

A job stores the number of the format with which its body was written (`Job.format`), and its body is read with this
format. This keeps the meaning of old rows. For example, the body of a row of format 0 is the value of `data`. If this
value is a map with the name `note`, it is still the value of `data` in a space that has the field `note` now.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.limits import ROW_FORMATS_MAX


@dataclass(frozen=True)
class Field:
    """One field of a space's format."""

    name: str
    type: str = "any"
    nullable: bool = False


def refusal(before: tuple[Field, ...], after: tuple[Field, ...], count: int) -> str:
    """Return why a space cannot change from the fields `before` to the fields `after`, or "" if it can.

    `count` is the number of formats that the space has.
    """
    if not before and after:
        return "it was made without a format, and a space keeps this choice"
    for old, new in zip(before, after, strict=False):
        if old.name != new.name:
            return _moved(old.name, new.name, [field.name for field in before], [field.name for field in after])
        if old.type != new.type:
            return f"field '{old.name}' has the type {old.type}, and its type cannot be changed to {new.type}"
        if old.nullable != new.nullable:
            return f"field '{old.name}' cannot change is_nullable"
    if len(after) < len(before):
        return f"field '{before[len(after)].name}' is missing, and fields cannot be removed"
    for field in after[len(before) :]:
        if not field.nullable:
            return f"new field '{field.name}' needs is_nullable = true, because old rows have no value for it"
    if len(after) > len(before) and count >= ROW_FORMATS_MAX:
        return f"it has {count} formats, which is the maximum; make another space and move the tasks"
    return ""


def _moved(old: str, new: str, before: list[str], after: list[str]) -> str:
    """Return the refusal for formats that have different names, `old` and `new`, at one position."""
    if old in after:
        if new in before:
            return f"field '{old}' is at another place, and fields cannot be reordered"
        return f"new field '{new}' is before '{old}', and fields can be added only at the end"
    if new in before:
        return f"field '{old}' is missing, and fields cannot be removed"
    return f"field '{old}' cannot be renamed to '{new}'"
