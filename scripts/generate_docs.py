"""Write docs/reference/states.md and the marked parts of other pages from tables in the code.

    python scripts/generate_docs.py

A generated part of a page is between two comments, `<!-- generated: NAME -->` and `<!-- end -->`. The text around it is
written by hand. tests/docs/test_generated.py fails if a page is stale.
"""

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import penstock
from penstock.cli.errors import MEANINGS
from penstock.cli.main import app
from penstock.cli.output import Output
from penstock.cli.targets import Target
from penstock.core import limits
from penstock.core import policy as p
from penstock.core import states as s
from penstock.core.errors import CommandError
from penstock.dialects.tarantool import queue15_functions, queue_functions
from penstock.dialects.xqueue import statuses
from penstock.node.caller import EVERYTHING
from penstock.node.caller import GROUPS as COMMAND_CLASSES
from penstock.node.dispatch import Command
from penstock.server.commands.command_list import tables
from penstock.server.config.settings import GROUPS, Setting
from penstock.server.metrics.families import GROUPS as METRICS
from penstock.spark.events.options import BOTH, OPTIONS
from penstock.web.refusals import OWN_CODES, STATUS_BY_CODE
from penstock.web.routes.all_routes import all_routes
from tests.security.attempts import all_attempts

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# ---- States ----------------------------------------------------------------------------------------------------------

STATE_MEANINGS = {
    s.GONE: "Not in the queue: before its put or after its end.",
    s.READY: "Can be taken.",
    s.TAKEN: "A consumer works on it.",
    s.DELAYED: "Can be taken when its delay ends.",
    s.BURIED: "Set aside until it is kicked or dug up.",
    s.DONE: "Acknowledged and kept.",
    s.ZOMBIE: "Acknowledged and kept for a limited time.",
    s.STAGED: "Put into a stage that is not published yet.",
}

# Disque distinguishes jobs that are queued, active, acked and waiting for their replicas.
DISQUE_WORDS = ["", "queued", "active", "active", "active", "acked", "acked", "wait-repl"]

EVENT_MEANINGS = {
    s.PUT: "The job was put.",
    s.PUT_DELAYED: "The job was put with a delay.",
    s.DELAY_PASSED: "The delay ended.",
    s.TOOK: "A consumer took the job.",
    s.UNDELIVERED: "The consumer disconnected before it received any byte of the job. This delivery is not counted.",
    s.RELEASED: "The consumer returned the job to its old place.",
    s.POSTPONED: "The consumer returned the job with a delay.",
    s.NACKED: "The consumer reported a failure.",
    s.TTR_PASSED: "The consumer held the job longer than its ttr.",
    s.DISCONNECTED: "The session that held the job ended.",
    s.ACKED: "The job was acknowledged and removed.",
    s.BURIED_BY: "The job was buried.",
    s.KICKED: "The job was kicked or dug up.",
    s.KICKED_DELAYED: "The job was dug up with a delay.",
    s.DELETED: "The job was deleted.",
    s.EXPIRED: "The ttl ended.",
    s.TRUNCATED: "The tube was truncated.",
    s.TOUCHED: "The consumer extended its time.",
    s.REQUEUED: "The consumer returned the job behind all others.",
    s.KEPT: "The job was acknowledged and is kept.",
    s.LINGERED: "The job was acknowledged and is kept for a limited time.",
    s.ZOMBIE_PASSED: "The time for which an acknowledged job is kept ended.",
    s.HELD_BACK: "The job failed, and its retry policy delays the next attempt.",
    s.EXHAUSTED: "The job failed too often, and its retry policy buried it.",
    s.DISCARDED: "The job failed too often, and its retry policy dropped it.",
    s.SNATCHED: "The job was taken away from its consumer.",
    s.SNATCHED_DELAYED: "The job was taken away from its consumer, with a delay.",
    s.RESTARTED: "The job was restarted.",
    s.RESTARTED_DELAYED: "The job was restarted with a delay.",
    s.SWITCHED_READY: "The state was set to ready.",
    s.SWITCHED_DELAYED: "The state was set to delayed.",
    s.SWITCHED_BURIED: "The state was set to buried.",
    s.SWITCHED_DONE: "The state was set to done.",
    s.SWITCHED_ZOMBIE: "The state was set to zombie.",
    s.MOVED_OUT: "The job moved to another tube.",
    s.MOVED_IN_READY: "The job came from another tube.",
    s.MOVED_IN_DELAYED: "The job came from another tube, delayed.",
    s.MOVED_IN_BURIED: "The job came from another tube, buried.",
    s.MOVED_IN_DONE: "The job came from another tube, done.",
    s.MOVED_IN_ZOMBIE: "The job was acknowledged, changed its key, and is kept for a limited time.",
    s.CLAIMED: "A claim took the job.",
    s.CLAIM_ENDED: "The claim that held the job ended without an ack.",
    s.PUT_URGENT: "The job was put in front of all others.",
    s.DOOMED: "The job was deleted while a claim holds it. It is removed when the claim ends.",
    s.CANCELLED: "The job was cancelled while a session holds it. It is removed when its delivery ends without an ack.",
    s.JUDGED: "A verdict on the job was given, changed or removed. It is executed when the claim is acked.",
    s.PRIORITIZED: "A client changed the priority of the job.",
    s.EDITED: "A client changed the body of the job.",
    s.PUT_STAGED: "The job was put into a stage.",
    s.PUBLISHED: "The stage of the job was published.",
    s.PUBLISHED_DELAYED: "The stage of the job was published, and the delay of the job began.",
    s.WITHDRAWN: "The stage of the job was discarded, or was not published in time.",
}

# Events that can happen in nearly every state. They would make the diagram unreadable.
NOT_DRAWN = {s.DELETED, s.TRUNCATED, s.MOVED_OUT} | set(range(s.SWITCHED_READY, s.SWITCHED_ZOMBIE + 1))


def _node(state: int) -> str:
    return "[*]" if state == s.GONE else s.STATE_NAMES[state]


def diagram() -> str:
    """Draw the states and the events between them, for Mermaid."""
    edges: dict[tuple[int, int], list[str]] = {}
    for event, source, target in s.TRANSITIONS:
        if event not in NOT_DRAWN:
            edges.setdefault((source, target), []).append(s.EVENT_NAMES[event])
    lines = [f"    {_node(a)} --> {_node(b)} : {', '.join(names)}" for (a, b), names in edges.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def states_table() -> str:
    """List every state, its number, its meaning, and its name in each client API."""
    words = {
        "Tarantool queue": queue_functions.STATE_LETTERS,
        "xqueue": statuses.STATUS_LETTERS,
        "1.5 API": queue15_functions.STATE_WORDS,
        "Disque": DISQUE_WORDS,
    }
    rows = [
        [
            str(state),
            f"**{s.STATE_NAMES[state]}**",
            STATE_MEANINGS[state],
            *(f"`{shown[state]}`" if shown[state] else "" for shown in words.values()),
        ]
        for state in range(s.STATES_COUNT)
    ]
    return table(["number", "the job is", "meaning", *words], rows)


def events_table() -> str:
    """List every event and its meaning."""
    unexplained = [name for event, name in enumerate(s.EVENT_NAMES) if event not in EVENT_MEANINGS]
    assert not unexplained, f"EVENT_MEANINGS does not explain: {', '.join(unexplained)}"
    rows = [[str(event), s.EVENT_NAMES[event], EVENT_MEANINGS[event]] for event in range(s.EVENTS_COUNT)]
    return table(["number", "event", "meaning"], rows)


def rules_table() -> str:
    """List every rule: event, from, to."""
    rows = [
        [str(rule), s.EVENT_NAMES[event], s.STATE_NAMES[source], s.STATE_NAMES[target]]
        for rule, (event, source, target) in enumerate(s.TRANSITIONS)
    ]
    return table(["rule", "event", "from", "to"], rows)


def states_page() -> str:
    """Return docs/reference/states.md."""
    parts = [
        "# The states of a job",
        "This page is generated from the table in `src/penstock/core/states.py` by `make docs`. Do not edit it.",
        "A job is in one state at a time. An event, such as a take or the end of a delay, moves it to the next state. "
        "One table of\nrules defines which event is allowed in which state, and the state that follows. The state of a "
        "job never changes in any\nother way.",
        "## The diagram",
        "The diagram omits four kinds of events that can happen in nearly every state: deleting a job, truncating its "
        "tube,\nmoving the job to another tube, and setting its state with `switch`. The [table of rules](#the-rules) "
        "includes them.",
        diagram(),
        "## The states, and their names in each client API",
        "The [journal](../explanation/journal.md) stores the numbers, which are the same in all versions of Penstock. "
        "The names in the\nsecond column are used in Python, in errors and in statistics. The last four columns show "
        "the names in the APIs of other\nqueues that Penstock offers. Disque has no name for a job that is gone, and "
        "shows a buried job as active. If a job moves to\nanother tube, statistics count this as a change to a "
        "state that is not in the table: `S` in xqueue, and `elsewhere` in\n`tube.transitions()`.",
        states_table(),
        "## The events",
        "Each event has a number, which is the same in all versions of Penstock. `tube.events()` returns how often "
        "each event\nhappened in a tube, by the names in this table.",
        events_table(),
        "## The rules",
        f"A rule consists of an event, the state before it and the state after it. There are {s.RULES_COUNT} rules. "
        "A tube counts how\noften it applied each rule, and all statistics are sums of these counts.",
        rules_table(),
    ]
    return "\n\n".join(parts) + "\n"


# ---- Errors ----------------------------------------------------------------------------------------------------------


def refusals() -> list[type[CommandError]]:
    """Return every error class that has a code of its own, by module and then in source order."""
    found: list[type[CommandError]] = []
    waiting = [CommandError]
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        ours = [each for each in kind.__subclasses__() if each.__module__.startswith("penstock.")]
        waiting.extend(each for each in ours if "code" in vars(each))
    # The order of imports is arbitrary, so sort by module, with the module of the engine first.
    return sorted(found[1:], key=lambda kind: (kind.__module__ != CommandError.__module__, kind.__module__))


def errors_table() -> str:
    """List every code and its sentence."""
    return table(["code", "class", "sentence"], [[f"`{k.code}`", k.__name__, str(k())] for k in refusals()])


# ---- Limits ----------------------------------------------------------------------------------------------------------

# The limits that a user can reach: what they limit, and their unit.
LIMITS = {
    "DURATION_MS_MAX": ("the longest ttl, ttr, delay or timeout, unless it is unlimited", "ms"),
    "PRIORITY_MAX": ("the greatest priority; the least is its negative", ""),
    "NUMBER_MAX": ("the greatest number that a put can give a job within its tube", ""),
    "NAME_BYTES_MAX": ("the name of a tube, a key, a job's name, a unique value, a dedup id", "bytes"),
    "BODY_BYTES_MAX": ("a body, unless `max_body` is set", "bytes"),
    "BODY_BYTES_HARD_MAX": ("the greatest value of `max_body`", "bytes"),
    "REASON_BYTES_MAX": ("the reason of a nack or bury", "bytes"),
    "HEADERS_MAX": ("headers of a job", "headers"),
    "HEADER_BYTES_MAX": ("names and values of a job's headers together", "bytes"),
    "RESULT_TTL_MS": ("how long a result is kept, unless `done` has a `ttl`", "ms"),
    "FOLLOW_UPS_MAX": ("jobs that one command puts after it has settled a job", "jobs"),
    "BATCH_JOBS_MAX": ("jobs in one put, take, kick or claim", "jobs"),
    "BATCH_BYTES_MAX": ("bodies, keys and names in one put", "bytes"),
    "JOB_MEMORY_BYTES": ("memory of a job without its body, counted against `memory_limit`", "bytes"),
    "NOTE_MEMORY_BYTES": (
        "memory of an acknowledgement that other nodes have not confirmed yet, without its ids",
        "bytes",
    ),
    "TUBE_MEMORY_BYTES": ("memory of a tube without its name and its notes, counted against `memory_limit`", "bytes"),
    "CONSUMER_MEMORY_BYTES": (
        "memory of a consumer of claims without its name, counted against `memory_limit`",
        "bytes",
    ),
    "DEDUP_MEMORY_BYTES": (
        "memory of a remembered dedup id without its bytes, counted against `memory_limit`",
        "bytes",
    ),
    "NOTES_CHARS_MAX": ("data that a client API stores with a tube: the options of an xqueue space", "characters"),
    "ROW_FORMATS_MAX": (
        "formats that an xqueue space can have over time; each addition of fields makes one",
        "formats",
    ),
    "MEMORY_BYTES_MIN": ("the least value of `memory_limit`", "bytes"),
    "NACKS_MAX": ("failures before an import that a put can state", "failures"),
    "WAIT_TUBES_MAX": ("tubes that one waiting take watches", "tubes"),
    "WAITS_PER_CONNECTION_MAX": ("calls of one connection to a server that wait at a time", "calls"),
    "DEDUP_COUNT": ("dedup ids that a tube remembers, unless `dedup_count` is set", "ids"),
    "DEDUP_MS": ("how long a tube remembers dedup ids, unless `dedup_window` is set", "ms"),
    "CLAIMS_OPEN_MAX": ("claims that a consumer has open", "claims"),
    "STAGE_EXPIRE_MS": ("how long a stage waits to be published, unless `expire` is set", "ms"),
    "STAGE_REMEMBERED_MS": ("how long the end of a stage is remembered", "ms"),
    "STAGES_REMEMBERED": ("ended stages that are remembered", "stages"),
    "BATCH_EXPIRE_MS": ("time without a put after which the callbacks of an unfinished batch are discarded", "ms"),
    "STAGE_MEMORY_BYTES": ("memory of a batch without its name", "bytes"),
    "STAGES_PER_COMMAND_MAX": ("stages that one command publishes or discards", "stages"),
    "FIRED_PER_TURN_MAX": ("deadlines that fire in one turn", "deadlines"),
    "NO_ROOM_MS": ("how long a deadline waits before it is tried again on a full disk", "ms"),
    "SCAN_EXAMINED_MAX": ("jobs that a scan examines for one page of results", "jobs"),
}
# Constants that users cannot reach: special values, and sizes without consequences.
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
    """Return the comment above each constant of core/limits.py. Adjacent constants share a comment."""
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
    """List every limit that a user can reach, and its reason."""
    reasons = limit_reasons()
    assert set(reasons) == set(LIMITS) | NOT_LIMITS, "each constant of limits.py is in LIMITS or in NOT_LIMITS"
    rows = [
        [f"`{name}`", what, f"{getattr(limits, name):,} {unit}".strip(), reasons[name]]
        for name, (what, unit) in LIMITS.items()
    ]
    return table(["limit", "limits", "value", "reason"], rows)


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
    keys = f"{policy.key_limit} taken per key" if policy.keys == p.KEYS_LIMITED else KEYS[policy.keys]
    return [
        f"[{policy.type}]({policy.type}.md)",
        ORDERS[policy.order],
        ", ".join(times) or "–",
        keys,
        "as set" if policy.type == "limfifottl" else "any number",
        "the session that took it" if policy.owner == p.SESSION else "anyone",
        AFTER_ACK[policy.after_ack],
        IDS.get(policy.ids, f"integer from {policy.first_integer}"),
    ]


def tubes_table() -> str:
    """Compare the presets."""
    headings = ["type", "order", "times", "keys", "capacity", "who may ack", "after ack", "id in its client API"]
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
    """List every setting, with a table for each group."""
    headings = ["setting", "directive", "meaning", "values", "default", "CONFIG SET"]
    return "\n\n".join(
        f"### {name}\n\n{table(headings, [_setting_row(setting) for setting in group])}"
        for name, group in GROUPS.items()
    )


def metrics_tables() -> str:
    """List every metric, with a table for each topic."""
    headings = ["metric", "type", "labels", "meaning"]
    return "\n\n".join(
        f"### {name}\n\n"
        + table(
            headings,
            [
                [f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels) or "–", each.help]
                for each in group
            ],
        )
        for name, group in METRICS.items()
    )


# ---- Commands --------------------------------------------------------------------------------------------------------


def _classes(command: Command) -> str:
    return ", ".join(name for name, bit in COMMAND_CLASSES.items() if command.group & bit) or "–"


def commands_table(own: bool = False) -> str:
    """List the commands of Disque and Redis, or Penstock's own."""
    rows = [
        [
            f"`{command.name.decode().upper()}`",
            f"`{command.grammar}`" if command.grammar else "",
            command.summary,
            "all users" if command.group == EVERYTHING else _classes(command),
        ]
        for command in tables()[own]
    ]
    return table(["command", "arguments", "effect", "class"], rows)


# ---- The HTTP API ----------------------------------------------------------------------------------------------------


def http_routes_tables() -> str:
    """List every route of the HTTP API, with a heading for each group."""
    groups: dict[str, list[list[str]]] = {}
    for route in all_routes():
        fields = [*route.query, *({} if route.body is None else {**route.body.required, **route.body.optional})]
        shown = ", ".join(f"`{name}`" for name in dict.fromkeys(fields))
        path = f"`{route.method} {route.path or '/'}`"
        groups.setdefault(route.group, []).append(
            [path, route.summary, shown, "–" if route.access == "open" else route.access]
        )
    headings = ["request", "effect", "fields", "class"]
    return "\n\n".join(f"### {group}\n\n{table(headings, rows)}" for group, rows in groups.items())


def http_codes_table() -> str:
    """List the error codes of the API itself."""
    return table(["code", "status", "meaning"], [[f"`{c}`", str(s), about] for c, (s, about) in OWN_CODES.items()])


def http_statuses_table() -> str:
    """List the statuses of the codes of the node."""
    by_status: dict[int, list[str]] = {}
    for code, status in STATUS_BY_CODE.items():
        if code not in OWN_CODES:
            by_status.setdefault(status, []).append(f"`{code}`")
    rows = [[str(status), ", ".join(codes)] for status, codes in sorted(by_status.items())]
    return table(["status", "codes"], [*rows, ["400", "all other codes"]])


# ---- Spark ----------------------------------------------------------------------------------------------------------


def events_options_table() -> str:
    """List every option of the source `penstock_events`."""
    rows = [
        [
            f"`{option.name}`" + "".join(f" (`{alias}`)" for alias in option.aliases),
            option.default,
            f"of a {option.of}: {option.meaning}" if option.of != BOTH else option.meaning,
        ]
        for option in OPTIONS
    ]
    return table(["option", "default", "meaning"], rows)


# ---- Pages -----------------------------------------------------------------------------------------------------------

# ---- The command line ------------------------------------------------------------------------------------------------


def _shared(command: Any) -> set[str]:
    """Return the names of the options that nearly every command has. They are explained once.

    They come in groups. A command that has only a part of a group, like the --url of the prompt, explains it itself.
    """
    options = {each.name for each in command.params if each.param_type_name == "option"}
    bundles = [{field.name for field in dataclasses.fields(bundle)} for bundle in (Target, Output)]
    return {"help"}.union(*(bundle for bundle in bundles if bundle <= options))


def _cell(text: str) -> str:
    return " ".join(text.split())


def _words(parameter: Any) -> str:
    """Return an option or an argument as a user writes it."""
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    metavar = "" if parameter.is_flag else f" {_value(parameter)}"
    return ", ".join(f"`{name}{metavar if name == parameter.opts[0] else ''}`" for name in names)


def _argument(parameter: Any) -> str:
    """Return the placeholder of an argument, in brackets if it is optional."""
    shown = parameter.metavar or parameter.name.upper() + ("..." if parameter.nargs != 1 else "")
    return shown if parameter.required or shown.startswith("[") else f"[{shown}]"


def _value(parameter: Any) -> str:
    """Return the placeholder for the value of an option."""
    if hasattr(parameter, "type_descriptor"):  # From typer 0.29 on.
        found = parameter.type_descriptor
        choices, is_number = found.choices or (), any(kind in str(found.annotation) for kind in ("int", "float"))
    else:
        choices, is_number = getattr(parameter.type, "choices", ()), parameter.type.name[:3] in ("int", "flo")
    named = [getattr(choice, "value", choice) for choice in choices]
    return parameter.metavar or "|".join(named) or ("N" if is_number else "TEXT")


def _command_section(path: str, command: Any) -> list[str]:
    """Describe one command and its own options."""
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
    """Describe every command of the command line, with its own options."""
    sections = [_command_section(path, command) for path, command in _commands("penstock", get_command(app))]
    return "\n".join(line for section in sections for line in section).strip()


def target_options_table() -> str:
    """List the options that nearly every command has."""
    command = get_command(app).commands["stats"]
    shared = _shared(command) - {"help"}
    rows = [[_words(each), _cell(each.help or "")] for each in command.params if each.name in shared]
    return table(["option", "meaning"], rows)


def exit_codes_table() -> str:
    """List every exit code."""
    return table(["code", "meaning"], [[str(code), meaning] for code, meaning in MEANINGS.items()])


def attempts_tables() -> str:
    """List every attack that the tests try, with a table for each test file."""
    headings = ["attempt", "where", "as", "result"]
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


def spark_versions_table() -> str:
    """List the features that some supported version of Spark lacks."""
    from penstock.spark.versions import FEATURES, SUPPORTED

    rows = []
    for feature in FEATURES:
        marks = ["yes" if version >= feature.since else "no" for version in SUPPORTED]
        rows.append([feature.name, *marks, feature.without])
    return table(["", *(f"{major}.{minor}" for major, minor in SUPPORTED), "without it"], rows)


# The generated parts: the page of each, and the function that writes it.
PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "command line": ("reference/cli.md", command_line_reference),
    "commands": ("reference/protocol.md", commands_table),
    "exit codes": ("reference/cli.md", exit_codes_table),
    "where": ("reference/cli.md", target_options_table),
    "native": ("reference/protocol.md", lambda: commands_table(own=True)),
    "errors": ("reference/embedded.md", errors_table),
    "limits": ("reference/compatibility.md", limits_table),
    "settings": ("reference/configuration.md", settings_tables),
    "metrics": ("reference/metrics.md", metrics_tables),
    "tubes": ("reference/tubes/README.md", tubes_table),
    "attempts": ("explanation/security.md", attempts_tables),
    "http routes": ("reference/http.md", http_routes_tables),
    "http codes": ("reference/http.md", http_codes_table),
    "http statuses": ("reference/http.md", http_statuses_table),
    "spark events": ("reference/spark-events.md", events_options_table),
    "decisions": ("adr/README.md", decisions_table),
}
# The table about Spark is in a module that needs Spark. Without Spark, it stays as it is.
if importlib.util.find_spec("pyspark"):
    PARTS["spark versions"] = ("reference/spark.md", spark_versions_table)


def with_part(text: str, name: str, content: str) -> str:
    """Return the page with one of its generated parts replaced."""
    begin, end = f"<!-- generated: {name} -->\n", "\n<!-- end -->"
    head, found, rest = text.partition(begin)
    assert found, f"the page has no {begin.strip()}"
    _, found, tail = rest.partition(end)
    assert found, f"the part {name} of the page has no end"
    return f"{head}{begin}\n{content}\n{end}{tail}"


def pages() -> dict[Path, str]:
    """Return every page that has generated parts, up to date."""
    found = {DOCS / "reference/states.md": states_page()}
    for name, (page, write) in PARTS.items():
        path = DOCS / page
        found[path] = with_part(found.get(path) or path.read_text(), name, write())
    return found


def main() -> int:
    """Write the pages that are stale, and print their names."""
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)} (penstock {penstock.__version__})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
