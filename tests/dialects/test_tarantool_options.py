"""Which options of Tarantool's queue each type of tube has. Options that a type does not have are ignored."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.core import policy as p
from penstock.core.policy import TubePolicy
from penstock.dialects.tarantool.tube_options import (
    has_put_option,
    has_release_option,
    has_take_option,
    has_tube_option,
)

ALWAYS = {"temporary", "if_not_exists", "on_task_change", "engine", "storage_mode"}
OWN = {"capacity_bytes", "retry", "max_deliveries", "dead_letter", "keep", "zombie", "dedup_window", "dedup_count"}
TTL = {"ttl", "ttl_while_taken", "ttr", "pri", "priority"}
OTHERS = {"capacity", "key_limit", "fair", "utube", "stube", "timeout", "delay", "nope", "", "TTL", "ttl "}
NAMES = sorted(ALWAYS | OWN | TTL | OTHERS | {"headers"})

# Type: the options of create_tube beside those of all types, of put, of take and of release.
TYPES: list[tuple[TubePolicy, set[str], set[str], set[str], set[str]]] = [
    (p.FIFO, set(), set(), set(), set()),
    (p.FIFOTTL, TTL, {"ttl", "ttr", "pri", "delay"}, set(), {"ttl", "pri", "delay"}),
    (p.LIMFIFOTTL, TTL | {"capacity"}, {"ttl", "ttr", "pri", "delay", "timeout"}, set(), {"ttl", "pri", "delay"}),
    (p.UTUBE, {"key_limit", "fair"}, {"utube"}, set(), set()),
    (p.UTUBETTL, TTL | {"key_limit", "fair"}, {"utube", "ttl", "ttr", "pri", "delay"}, set(), {"ttl", "pri", "delay"}),
]


@pytest.mark.parametrize(
    ("policy", "tube", "put", "take", "release"), TYPES, ids=lambda each: getattr(each, "type", "")
)
def test_each_type_has_its_options_and_no_others(
    policy: TubePolicy, tube: set[str], put: set[str], take: set[str], release: set[str]
) -> None:
    assert {name for name in NAMES if has_tube_option(policy, name)} == tube | ALWAYS | OWN
    assert {name for name in NAMES if has_put_option(policy, name)} == put | {"headers"}
    assert {name for name in NAMES if has_take_option(policy, name)} == take
    assert {name for name in NAMES if has_release_option(policy, name)} == release


@pytest.mark.parametrize("limit", ["capacity", "capacity_bytes"])
def test_a_put_can_wait_in_every_tube_with_a_capacity(limit: str) -> None:
    assert not has_put_option(p.FIFO, "timeout")
    assert has_put_option(dataclasses.replace(p.FIFO, **{limit: 10}), "timeout")


@pytest.mark.parametrize(
    ("keys", "put", "take"),
    [
        (p.KEYS_NONE, set(), set()),
        (p.KEYS_LIMITED, {"utube"}, set()),
        (p.KEYS_NAMED, {"stube"}, {"stube"}),
        (p.KEYS_TAGGED, {"utube", "stube"}, {"utube", "stube"}),
    ],
)
def test_the_kind_of_keys_decides_which_key_options_exist(keys: int, put: set[str], take: set[str]) -> None:
    policy = dataclasses.replace(p.FIFO, keys=keys)
    assert {name for name in NAMES if has_put_option(policy, name)} == put | {"headers"}
    assert {name for name in NAMES if has_take_option(policy, name)} == take
