"""The generated parts of the documentation are up to date. Run `make docs` if a test fails."""

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from penstock.core import states as s
from penstock.core.engine import Engine
from penstock.core.ids import IdForms
from penstock.core.outbox import Outbox
from penstock.core.policy import PRESETS, TubePolicy
from penstock.dialects.tarantool.queue15_functions import Queue15Functions
from penstock.dialects.tarantool.queue_functions import QueueFunctions, TubeMethods
from penstock.dialects.xqueue.space import METHODS
from penstock.node.context import CommandContext
from penstock.options import PutOptions, TubeOptions
from penstock.server.commands import cluster_commands, debug_commands
from penstock.server.commands.command_list import tables
from penstock.server.config.settings import find
from penstock.server.net.descriptors import RESERVE

SITE = CommandContext(
    Engine(1, 0, Outbox()), IdForms(b"0" * 8, b"k" * 32), b"0" * 40, lambda job: b"", lambda length: None
)
ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
_spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
assert _spec is not None and _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", ["reference/states.md", *sorted({page for page, _ in generate.PARTS.values()})])
def test_a_generated_page_is_not_stale(page: str) -> None:
    path = ROOT / "docs" / page
    assert path.read_text() == generate.pages()[path], f"docs/{page} is stale: run `make docs`"


def test_every_state_and_event_is_explained() -> None:
    assert set(generate.STATE_MEANINGS) == set(range(s.STATES_COUNT))
    assert set(generate.EVENT_MEANINGS) == set(range(s.EVENTS_COUNT))


def test_every_rule_is_in_the_table_of_rules() -> None:
    assert len(generate.rules_table().splitlines()) == 2 + s.RULES_COUNT


def test_every_drawn_rule_is_in_the_diagram() -> None:
    drawn = generate.diagram()
    for event, _, _ in s.TRANSITIONS:
        assert event in generate.NOT_DRAWN or s.EVENT_NAMES[event] in drawn


def test_every_refusal_has_a_code_of_its_own_and_a_sentence() -> None:
    kinds = generate.refusals()
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.code.isupper() and str(kind()).endswith(".")


def test_every_limit_has_a_reason() -> None:
    assert all(generate.limit_reasons().values())


@pytest.mark.parametrize("type", PRESETS)
def test_every_type_of_tube_has_its_page(type: str) -> None:
    assert (REFERENCE / "tubes" / f"{type}.md").read_text().startswith(f"# {type}")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(TubePolicy)])
def test_every_field_of_a_policy_is_explained(field: str) -> None:
    assert f"`{field}`" in (REFERENCE / "tubes" / "custom.md").read_text()


@pytest.mark.parametrize("option", sorted({**PutOptions.__annotations__, **TubeOptions.__annotations__}))
def test_every_option_of_put_and_tube_is_in_the_docs(option: str) -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert f"`{option}`" in pages or f"`{option}=" in pages


def test_every_method_of_the_originals_is_compared_with_ours() -> None:
    said, rows = (REFERENCE / "compatibility.md").read_text(), (REFERENCE / "xqueue.md").read_text()
    tubes, queue, old = TubeMethods(SITE), QueueFunctions(SITE), Queue15Functions(SITE)
    functions = [f"queue.{name.decode()}" for name in queue._functions]
    methods = [name.decode() for name in [*tubes._functions, *old.functions()]]
    commands = [command.name.decode().upper() for command in tables()[0]]
    for page, names in ((said, functions), (said, methods), (said, commands), (rows, METHODS)):
        missing = [name for name in names if not re.search(rf"[`.]{re.escape(name.split('.', 1)[-1])}[`(]", page)]
        assert not missing


@pytest.mark.parametrize("word", [word.decode() for word in debug_commands.SUBCOMMANDS])
def test_every_subcommand_of_debug_is_in_the_docs(word: str) -> None:
    [row] = re.findall(r"^\| `DEBUG` .*", (REFERENCE / "protocol.md").read_text(), re.MULTILINE)
    assert re.search(rf"[`| ]{word}[` ]", row)


def test_every_subcommand_of_cluster_is_in_the_docs() -> None:
    [row] = re.findall(r"^\| `CLUSTER` .*", (REFERENCE / "protocol.md").read_text(), re.MULTILINE)
    words = re.findall(r'\bword == b"([A-Z-]+)"', inspect.getsource(cluster_commands))
    assert len(words) > 10 and [word for word in words if word not in row] == []


def test_a_stale_part_is_found() -> None:
    page = "before\n<!-- generated: x -->\n\nold\n\n<!-- end -->\nafter\n"
    assert generate.with_part(page, "x", "old") == page
    assert generate.with_part(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(AssertionError):
        generate.with_part(page, "y", "new")


def test_the_reserve_of_descriptors_is_in_the_docs() -> None:
    section = (REFERENCE / "server.md").read_text().partition("| for | descriptors |")[2].partition("\n\n")[0]
    assert sum(map(int, re.findall(r"\| ([0-9]+) \|$", section, re.MULTILINE))) == RESERVE
    setting = find("max_clients")
    assert setting is not None and f" {RESERVE} more" in setting.description
