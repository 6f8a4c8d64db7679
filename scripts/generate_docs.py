"""Write docs/reference/states.md and the marked parts of other pages from tables in the code.

    python scripts/generate_docs.py

A generated part of a page stands between two comments, `<!-- generated: NAME -->` and `<!-- end -->`; the words around
it are written by hand. tests/docs/test_generated.py fails when a page does not say what this script would write.
"""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import penstock
from penstock.cli.exits import MEANINGS
from penstock.cli.main import app
from penstock.cli.output import Output
from penstock.cli.target import Target
from penstock.core import limits
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.dialects import tarantool, tarantool15, xqueue
from penstock.dialects.command import EVERYTHING, Command
from penstock.dialects.command import GROUPS as COMMAND_CLASSES
from penstock.server.catalogue import tables
from penstock.server.settings import GROUPS, Setting
from tests.security.attempts import all_attempts

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def table(headings: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# ---- States ----------------------------------------------------------------------------------------------------------

STATE_MEANINGS = {
    s.GONE: "Not in the queue: before its put, and after its end.",
    s.READY: "Can be taken.",
    s.TAKEN: "Somebody works on it.",
    s.DELAYED: "Cannot be taken before a certain moment.",
    s.BURIED: "Put aside until somebody digs it up.",
    s.DONE: "Acked, and kept.",
    s.ZOMBIE: "Acked, and kept for a while.",
    s.STAGED: "Put into a stage, and not published yet.",
}

# Disque knows of a job whether it is queued, whether it was acked, and whether it waits for its replicas.
DISQUE_WORDS = ["", "queued", "active", "active", "active", "acked", "acked", "wait-repl"]

EVENT_MEANINGS = {
    s.PUT: "It was put.",
    s.PUT_DELAYED: "It was put with a delay.",
    s.DELAY_PASSED: "Its delay ended.",
    s.TOOK: "A consumer took it.",
    s.UNDELIVERED: "Its taker was gone before a byte of it was handed over; this delivery is not counted.",
    s.RELEASED: "It was given back: to its old place.",
    s.POSTPONED: "It was given back with a delay.",
    s.NACKED: "Its taker said that it failed.",
    s.TTR_PASSED: "Its taker held it longer than its ttr.",
    s.DISCONNECTED: "The session that held it ended.",
    s.ACKED: "It was acked, and goes.",
    s.BURIED_BY: "It was buried.",
    s.KICKED: "It was dug up.",
    s.KICKED_DELAYED: "It was dug up with a delay.",
    s.DELETED: "It was deleted.",
    s.EXPIRED: "Its ttl ended.",
    s.TRUNCATED: "Its tube was emptied.",
    s.TOUCHED: "Its taker got more time.",
    s.REQUEUED: "It was given back to behind all others.",
    s.KEPT: "It was acked, and stays.",
    s.LINGERED: "It was acked, and stays for a while.",
    s.ZOMBIE_PASSED: "The while is over.",
    s.HELD_BACK: "It had failed, and its retry policy lets it wait.",
    s.EXHAUSTED: "It had failed as often as it may, and is buried.",
    s.DISCARDED: "It had failed as often as it may, and is dropped.",
    s.SNATCHED: "It was taken away from its holder.",
    s.SNATCHED_DELAYED: "It was taken away from its holder, with a delay.",
    s.RESTARTED: "It was brought back.",
    s.RESTARTED_DELAYED: "It was brought back with a delay.",
    s.SWITCHED_READY: "Somebody made it ready.",
    s.SWITCHED_DELAYED: "Somebody made it delayed.",
    s.SWITCHED_BURIED: "Somebody made it buried.",
    s.SWITCHED_DONE: "Somebody made it done.",
    s.SWITCHED_ZOMBIE: "Somebody made it a zombie.",
    s.MOVED_OUT: "It left for another tube.",
    s.MOVED_IN_READY: "It came from another tube.",
    s.MOVED_IN_DELAYED: "It came from another tube, delayed.",
    s.MOVED_IN_BURIED: "It came from another tube, buried.",
    s.MOVED_IN_DONE: "It came from another tube, done.",
    s.MOVED_IN_ZOMBIE: "It came from another key as it was acked, to be kept for a while.",
    s.CLAIMED: "A claim took it.",
    s.CLAIM_ENDED: "The claim that held it ended without an ack.",
    s.PUT_URGENT: "It was put before all others.",
    s.DOOMED: "It was deleted while a claim holds it, and goes when the claim ends.",
    s.PUT_STAGED: "It was put into a stage.",
    s.PUBLISHED: "Its stage was published.",
    s.PUBLISHED_DELAYED: "Its stage was published, and its delay began.",
    s.WITHDRAWN: "Its stage was discarded, or was not published in time.",
}

# Left out of the diagram, which would otherwise be a net: what can happen in nearly every state.
NOT_DRAWN = {s.DELETED, s.TRUNCATED, s.MOVED_OUT} | set(range(s.SWITCHED_READY, s.SWITCHED_ZOMBIE + 1))


def _node(state: int) -> str:
    return "[*]" if state == s.GONE else s.STATE_NAMES[state]


def diagram() -> str:
    """The states and what leads from one to another, for Mermaid."""
    edges: dict[tuple[int, int], list[str]] = {}
    for event, source, target in s.TRANSITIONS:
        if event not in NOT_DRAWN:
            edges.setdefault((source, target), []).append(s.EVENT_NAMES[event])
    lines = [f"    {_node(a)} --> {_node(b)} : {', '.join(names)}" for (a, b), names in edges.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def states_table() -> str:
    """Every state: what it means, and how each vocabulary writes it."""
    words = {
        "Tarantool queue": tarantool.STATE_LETTERS,
        "xqueue": xqueue.STATUS_LETTERS,
        "1.5 API": tarantool15.STATE_WORDS,
        "Disque": DISQUE_WORDS,
    }
    rows = [
        [
            f"**{s.STATE_NAMES[state]}**",
            STATE_MEANINGS[state],
            *(f"`{shown[state]}`" if shown[state] else "" for shown in words.values()),
        ]
        for state in range(s.STATES_COUNT)
    ]
    return table(["the job is", "which means", *words], rows)


def events_table() -> str:
    """Every event and what happened then."""
    unexplained = [name for event, name in enumerate(s.EVENT_NAMES) if event not in EVENT_MEANINGS]
    assert not unexplained, f"say in EVENT_MEANINGS what happened: {', '.join(unexplained)}"
    rows = [[str(event), s.EVENT_NAMES[event], EVENT_MEANINGS[event]] for event in range(s.EVENTS_COUNT)]
    return table(["number", "event", "what happened"], rows)


def rules_table() -> str:
    """Every rule: event, from, to."""
    rows = [
        [str(rule), s.EVENT_NAMES[event], s.STATE_NAMES[source], s.STATE_NAMES[target]]
        for rule, (event, source, target) in enumerate(s.TRANSITIONS)
    ]
    return table(["rule", "event", "from", "to"], rows)


def states_page() -> str:
    """docs/reference/states.md, whole."""
    parts = [
        "# The states of a job",
        "This page is generated from the table in `src/penstock/core/states.py` by `make docs`. Do not edit it.",
        "A job is in one state at a time. An event takes it to the next. Which event is allowed in which state, and "
        "where it\nleads, is one table; nothing else changes a job's state.",
        "## The diagram",
        "Left out, because they can happen to a job in nearly every state: deleting it, emptying its tube, "
        "moving it to another\ntube, switching it by hand. They are in the table of rules below.",
        diagram(),
        "## The states, and how each vocabulary writes them",
        "The names in the first column are used in Python, in errors and in statistics. The other columns are how the\n"
        "vocabularies of the originals write the same state; today the server speaks Disque's. Disque has "
        "no word\nfor a job that is gone, and none for one that is buried: that is neither queued nor acked. "
        "The xqueue's statistics also\nhave `S`, another tube, which is `elsewhere` in `tube.transitions()`.",
        states_table(),
        "## The events",
        "The numbers are for ever. `tube.events()` counts by these names.",
        events_table(),
        "## The rules",
        f"{s.RULES_COUNT} rules. A tube counts how often it applied each one; "
        "every statistic is a sum over these counts.",
        rules_table(),
    ]
    return "\n\n".join(parts) + "\n"


# ---- Errors ----------------------------------------------------------------------------------------------------------


def refusals() -> list[type[CommandError]]:
    """Every class of refusal that has a code of its own, in the order they were written, module by module."""
    found: list[type[CommandError]] = []
    waiting = [CommandError]
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        ours = [each for each in kind.__subclasses__() if each.__module__.startswith("penstock.")]
        waiting.extend(each for each in ours if "code" in vars(each))
    # Which module is imported first is an accident; the engine's own is the first here.
    return sorted(found[1:], key=lambda kind: (kind.__module__ != CommandError.__module__, kind.__module__))


def errors_table() -> str:
    """Every code and its sentence."""
    return table(["code", "class", "sentence"], [[f"`{k.code}`", k.__name__, str(k())] for k in refusals()])


# ---- Limits ----------------------------------------------------------------------------------------------------------

# What a user can run into, and in which unit.
LIMITS = {
    "DURATION_MS_MAX": ("the longest ttl, ttr, delay or timeout that ends", "ms"),
    "PRIORITY_MAX": ("the greatest priority; the least is its negative", ""),
    "NUMBER_MAX": ("the greatest integer of a job within its tube that a put may bring", ""),
    "NAME_BYTES_MAX": ("the name of a tube, a key, a job's name, a unique value, a dedup id", "bytes"),
    "BODY_BYTES_MAX": ("a body, unless `max_body` says otherwise", "bytes"),
    "BODY_BYTES_HARD_MAX": ("what `max_body` can be set to", "bytes"),
    "REASON_BYTES_MAX": ("the reason of a nack or bury", "bytes"),
    "RESULT_TTL_MS": ("how long a result is kept, unless `done` says otherwise", "ms"),
    "BATCH_JOBS_MAX": ("jobs in one put, take, kick or claim", "jobs"),
    "BATCH_BYTES_MAX": ("bodies, keys and names in one put", "bytes"),
    "JOB_MEMORY_BYTES": ("what a job counts against `memory_limit` beside its body", "bytes"),
    "NOTE_MEMORY_BYTES": ("what an acknowledgement that is not collected yet counts, beside its ids", "bytes"),
    "TUBE_MEMORY_BYTES": ("what a tube counts against `memory_limit` beside its name and its notes", "bytes"),
    "CONSUMER_MEMORY_BYTES": ("what a consumer of claims counts against `memory_limit` beside its name", "bytes"),
    "DEDUP_MEMORY_BYTES": (
        "what a dedup id that is remembered counts against `memory_limit`, beside its length",
        "bytes",
    ),
    "NOTES_CHARS_MAX": ("what a vocabulary notes of a tube: the options of an xqueue space", "characters"),
    "MEMORY_BYTES_MIN": ("the least that `memory_limit` can be set to", "bytes"),
    "NACKS_MAX": ("failures elsewhere that a put may tell of", "failures"),
    "WAIT_TUBES_MAX": ("tubes that one waiting take watches", "tubes"),
    "WAITS_PER_CONNECTION_MAX": ("calls of one connection to a server that wait at a time", "calls"),
    "DEDUP_COUNT": ("dedup ids that a tube remembers, unless it says otherwise", "ids"),
    "DEDUP_MS": ("how long it remembers them, unless it says otherwise", "ms"),
    "CLAIMS_OPEN_MAX": ("claims that a consumer has open", "claims"),
    "STAGE_EXPIRE_MS": ("how long a stage waits to be published, unless it says otherwise", "ms"),
    "STAGE_REMEMBERED_MS": ("how long it is remembered that a stage was published or discarded", "ms"),
    "STAGES_REMEMBERED": ("stages of which that is remembered", "stages"),
    "STAGES_PER_COMMAND_MAX": ("stages that one command publishes or discards", "stages"),
    "FIRED_PER_TURN_MAX": ("deadlines that fire in one turn", "deadlines"),
    "NO_ROOM_MS": ("how long a deadline waits for room on a full disk", "ms"),
    "SCAN_EXAMINED_MAX": ("jobs that a scan looks at for one page of results", "jobs"),
}
# What only the engine sees: values that stand for something, and sizes without a consequence.
NOT_LIMITS = {
    "JOB_TTL",
    "ROW_ROOM_BYTES",
    "TURN_BYTES_MAX",
    "NEVER",
    "UNSET",
    "PRIORITY_UNSET",
    "PRIORITY_FRONT",
    "PRIORITY_BACK",
    "LOCAL_IDS_BLOCK",
    "LOCAL_IDS_BLOCK_MAX",
}


def limit_reasons() -> dict[str, str]:
    """The comment above each constant of core/limits.py; a constant right below another one shares its comment."""
    reasons: dict[str, str] = {}
    comment: list[str] = []
    for line in (ROOT / "src/penstock/core/limits.py").read_text().splitlines():
        constant = re.match(r"([A-Z_]+): Final\b", line)
        if line.startswith("# "):
            comment.append(line[2:])
        elif constant:
            reasons[constant[1]] = " ".join(comment)
        elif not line:
            comment = []
    return reasons


def limits_table() -> str:
    """Every limit that a user can meet, and its reason."""
    reasons = limit_reasons()
    assert set(reasons) == set(LIMITS) | NOT_LIMITS, "each constant of limits.py is in LIMITS or in NOT_LIMITS"
    rows = [
        [f"`{name}`", what, f"{getattr(limits, name):,} {unit}".strip(), reasons[name]]
        for name, (what, unit) in LIMITS.items()
    ]
    return table(["limit", "of what", "value", "reason"], rows)


# ---- Types of tube ---------------------------------------------------------------------------------------------------

ORDERS = {p.BY_ARRIVAL: "arrival", p.BY_PRIORITY: "priority, arrival", p.BY_CREATION: "creation"}
KEYS = {
    p.KEYS_NONE: "–",
    p.KEYS_NAMED: "take by key",
    p.KEYS_TAGGED: "take by key, or any",
}
AFTER_ACK = {p.GOES: "gone", p.KEPT: "kept as done", p.LINGERS: "kept as zombie"}
IDS = {p.ID_LONG: "40 characters", p.ID_HEX: "32 hex digits", p.ID_NAME: "its name"}


def _preset_row(policy: p.TubePolicy) -> list[str]:
    times = [
        name for name, has in [("ttl", policy.has_ttl), ("ttr", policy.has_ttr), ("delay", policy.has_delay)] if has
    ]
    keys = f"{policy.key_limit} taken a key" if policy.keys == p.KEYS_LIMITED else KEYS[policy.keys]
    return [
        f"[{policy.type}]({policy.type}.md)",
        ORDERS[policy.order],
        ", ".join(times) or "–",
        keys,
        "what you set" if policy.type == "limfifottl" else "any number",
        "the session that took it" if policy.owner == p.SESSION else "anyone",
        AFTER_ACK[policy.after_ack],
        IDS.get(policy.ids, f"integer from {policy.first_integer}"),
    ]


def tubes_table() -> str:
    """The presets side by side."""
    headings = ["type", "order", "times", "keys", "capacity", "who may ack", "after ack", "id of its vocabulary"]
    return table(headings, [_preset_row(policy) for policy in p.PRESETS.values()])


# ---- Settings --------------------------------------------------------------------------------------------------------


def _setting_row(setting: Setting) -> list[str]:
    default = f"`{setting.default}`" if setting.default else "–"
    if setting.disque_default is not None:
        default += f"; from a disque.conf `{setting.disque_default}`"
    return [
        f"`{setting.name}`",
        f"`{setting.directive}`",
        setting.description,
        setting.kind.allowed,
        default,
        "yes" if setting.changeable else "–",
    ]


def settings_tables() -> str:
    """Every setting, a table for each group."""
    headings = ["setting", "directive", "what it says", "must be", "default", "CONFIG SET"]
    return "\n\n".join(
        f"### {name}\n\n{table(headings, [_setting_row(setting) for setting in group])}"
        for name, group in GROUPS.items()
    )


# ---- Commands --------------------------------------------------------------------------------------------------------


def _classes(command: Command) -> str:
    return ", ".join(name for name, bit in COMMAND_CLASSES.items() if command.group & bit) or "–"


def commands_table(own: bool = False) -> str:
    """The commands of one kind."""
    rows = [
        [
            f"`{command.name.decode().upper()}`",
            f"`{command.grammar}`" if command.grammar else "",
            command.summary,
            "everybody" if command.group == EVERYTHING else _classes(command),
        ]
        for command in tables()[own]
    ]
    return table(["command", "what follows", "what it does", "class"], rows)


# ---- Pages -----------------------------------------------------------------------------------------------------------

# A generated part: the page it is on, and what writes it.
# ---- The command line ------------------------------------------------------------------------------------------------


def _shared(command: Any) -> set[str]:
    """The names of options of a command that nearly every command has; they are explained once.

    They come in bundles: what has only one of a bundle, like the --url of the prompt, has it of its own.
    """
    options = {each.name for each in command.params if each.param_type_name == "option"}
    bundles = [{field.name for field in dataclasses.fields(bundle)} for bundle in (Target, Output)]
    return {"help"}.union(*(bundle for bundle in bundles if bundle <= options))


def _cell(text: str) -> str:
    return " ".join(text.split())


def _words(parameter: Any) -> str:
    """How an option or an argument is written."""
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    metavar = "" if parameter.is_flag else f" {_value(parameter)}"
    return ", ".join(f"`{name}{metavar if name == parameter.opts[0] else ''}`" for name in names)


def _argument(parameter: Any) -> str:
    """What stands for an argument, in brackets if it can be left out."""
    shown = parameter.metavar or parameter.name.upper() + ("..." if parameter.nargs != 1 else "")
    return shown if parameter.required or shown.startswith("[") else f"[{shown}]"


def _value(parameter: Any) -> str:
    """What stands for the value of an option."""
    if hasattr(parameter, "type_descriptor"):  # From typer 0.29 on.
        found = parameter.type_descriptor
        choices, is_number = found.choices or (), any(kind in str(found.annotation) for kind in ("int", "float"))
    else:
        choices, is_number = getattr(parameter.type, "choices", ()), parameter.type.name[:3] in ("int", "flo")
    named = [getattr(choice, "value", choice) for choice in choices]
    return parameter.metavar or "|".join(named) or ("N" if is_number else "TEXT")


def _command_section(path: str, command: Any) -> list[str]:
    """One command: its usage, what it does, and what may follow."""
    shared = _shared(command)
    own = [each for each in command.params if each.name not in shared]
    lines = [f"### {path}", "", *(" ".join(part.split()) + "\n" for part in (command.help or "").split("\n\n"))]
    if own:
        rows = [[_words(each), _cell(each.help or "")] for each in own]
        lines += [table(["", ""], rows), ""]
    return lines


def _commands(path: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(f"{path} {name}", command)
        else:
            yield f"{path} {name}", command


def command_line_reference() -> str:
    """Every command of the command line, with every option of its own."""
    sections = [_command_section(path, command) for path, command in _commands("penstock", get_command(app))]
    return "\n".join(line for section in sections for line in section).strip()


def target_options_table() -> str:
    """The options that nearly every command has."""
    command = get_command(app).commands["stats"]
    shared = _shared(command) - {"help"}
    rows = [[_words(each), _cell(each.help or "")] for each in command.params if each.name in shared]
    return table(["option", "what it says"], rows)


def exit_codes_table() -> str:
    """Every exit code."""
    return table(["code", "meaning"], [[str(code), meaning] for code, meaning in MEANINGS.items()])


def attempts_tables() -> str:
    """Every attack that the tests try, a table for each test file."""
    headings = ["tried", "where", "as whom", "result"]
    return "\n\n".join(
        f"### {title}\n\n{table(headings, [list(dataclasses.astuple(each)) for each in attempts])}"
        for title, attempts in all_attempts()
    )


def decisions_table() -> str:
    """List every architecture decision record by its title, with the one that replaced it."""
    rows = []
    for path in sorted((DOCS / "adr").glob("0*.md")):
        text = path.read_text()
        number, _, title = text.partition("\n")[0].removeprefix("# ").partition(". ")
        successor = re.search(r"^Superseded by (.*)\.$", text, flags=re.MULTILINE)
        rows.append([number, f"[{title}]({path.name})", successor[1] if successor else ""])
    return table(["number", "decision", "replaced by"], rows)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "command line": ("reference/cli.md", command_line_reference),
    "commands": ("reference/protocol.md", commands_table),
    "exit codes": ("reference/cli.md", exit_codes_table),
    "where": ("reference/cli.md", target_options_table),
    "native": ("reference/protocol.md", lambda: commands_table(own=True)),
    "errors": ("reference/embedded.md", errors_table),
    "limits": ("reference/compatibility.md", limits_table),
    "settings": ("reference/configuration.md", settings_tables),
    "tubes": ("reference/tubes/README.md", tubes_table),
    "attempts": ("explanation/security.md", attempts_tables),
    "decisions": ("adr/README.md", decisions_table),
}


def with_part(text: str, name: str, content: str) -> str:
    """A page with one of its generated parts as it should be."""
    begin, end = f"<!-- generated: {name} -->\n", "\n<!-- end -->"
    head, found, rest = text.partition(begin)
    assert found, f"the page has no {begin.strip()}"
    _, found, tail = rest.partition(end)
    assert found, f"the part {name} of the page has no end"
    return f"{head}{begin}\n{content}\n{end}{tail}"


def pages() -> dict[Path, str]:
    """Every page that has something generated in it, as it should be."""
    found = {DOCS / "reference/states.md": states_page()}
    for name, (page, write) in PARTS.items():
        path = DOCS / page
        found[path] = with_part(found.get(path) or path.read_text(), name, write())
    return found


def main() -> int:
    """Write the pages that are not as they should be, and name them."""
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)} (penstock {penstock.__version__})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
