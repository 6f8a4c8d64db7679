"""Decodes the JSON object that the log stores in the rows of created and changed tubes. `rows.py` encodes it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from penstock.core import policy as p
from penstock.core.limits import NEVER
from penstock.core.policy import TubePolicy


class TubeFields(NamedTuple):
    """The fields of a tube besides its name and number."""

    policy: TubePolicy
    created: int  # Time of its creation, in ms.
    paused_in: bool  # Whether puts are paused.
    paused_out: bool  # Whether takes are paused.


def decode_tube_fields(encoded: bytes) -> TubeFields:
    """Return the fields of a tube from the JSON object of its row.

    Fields of a policy that a newer version added are left out.
    """
    fields = json.loads(encoded)
    known = {field.name for field in dataclasses.fields(TubePolicy)}
    policy = policy_of({name: value for name, value in fields["policy"].items() if name in known})
    return TubeFields(policy, fields["created"], bool(fields["paused_in"]), bool(fields["paused_out"]))


def policy_of(fields: dict[str, Any]) -> TubePolicy:
    """Return the policy that has these fields. A field that an older version did not write is as in its type."""
    preset = p.PRESETS.get(fields["type"])
    missing = {} if preset is None else dataclasses.asdict(preset)
    return TubePolicy(**{**missing, **fields, "key_stats": tuple(fields["key_stats"])})


def policy_json(policy: TubePolicy) -> str:
    """Return all fields of a policy as a JSON object, with null for a time without a limit, as TUBE INFO returns them.

    `options.policy_from` turns the object into the policy again.
    """
    fields = dataclasses.asdict(policy)
    return json.dumps({name: None if value == NEVER else value for name, value in fields.items()})
