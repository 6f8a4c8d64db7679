"""The house rules, as tests. A rule is a function from source to complaints, and each is shown to bite.

The rules read the source tree, never the installed package, so they are the same compiled and interpreted.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"

# Who may import whom, from the bottom up. A package may always import itself; `penstock` is the public __init__.py.
MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "_extras": set(),
    "_librt": set(),
    "core": set(),
    "_build": {"core"},
    "wire": {"core", "cluster"},
    "cluster": {"core"},
    "node": {"core", "wire", "cluster", "journal"},
    "search": {"core", "wire"},
    "dialects": {"core", "wire", "cluster", "node", "options", "search"},
    "journal": {"core", "wire"},
    "keywords": set(),
    "options": {"core", "keywords", "wire"},
    "changes": set(),
    "durations": {"core"},
    "api": {"changes", "core", "durations", "journal", "keywords", "options"},
    "api_async": {"api", "changes", "core", "durations", "journal", "keywords", "options"},
    "drivers": {"core", "wire", "options"},
    "host": {"changes", "core", "drivers", "journal", "node", "options"},
    "embedded": {"api", "changes", "core", "drivers", "durations", "journal", "keywords", "options", "host", "search"},
    "embedded_async": {"api_async", "core", "journal", "options", "host", "embedded"},
    "compat": {
        "api",
        "changes",
        "client",
        "core",
        "wire",
        "dialects",
        "node",
        "options",
        "host",
        "embedded",
        "drivers",
    },
    "client": {
        "_version",
        "api",
        "api_async",
        "changes",
        "core",
        "durations",
        "wire",
        "journal",
        "keywords",
        "options",
    },
    "server": {
        "_build",
        "_extras",
        "_version",
        "core",
        "wire",
        "cluster",
        "dialects",
        "drivers",
        "durations",
        "journal",
        "host",
        "node",
    },
    "spark": {"_extras", "_version", "core", "journal", "client"},
    "report": {"core", "journal", "search", "wire"},
    "lake": {"core", "journal", "report", "spark"},
    "pipeline": {"_version", "client", "core", "journal", "lake", "options", "report", "spark", "wire"},
    # The API is a client of the nodes. It shares the check of Host with a node's own HTTP port.
    "web": {"_extras", "_version", "client", "core", "journal", "lake", "options", "report", "server", "wire"},
    "dashboard": {"_extras", "_version", "core", "web"},
    "testing": {
        "core",
        "wire",
        "cluster",
        "dialects",
        "journal",
        "node",
        "host",
        "embedded",
        "embedded_async",
        "client",
        "server",
    },
    "opening": {"api", "api_async", "core", "keywords", "options", "embedded", "embedded_async", "client"},
    "telemetry": {"_extras", "_version", "api", "api_async", "client", "embedded", "embedded_async"},
    "cron": {"_extras", "api", "api_async", "core", "options"},
    "tasks": {
        *(
            "api",
            "api_async",
            "client",
            "core",
            "cron",
            "keywords",
            "opening",
            "options",
            "telemetry",
            "testing",
            "wire",
        ),
    },
    "penstock": {
        "_version",
        "api",
        "api_async",
        "changes",
        "client",
        "core",
        "dashboard",
        "drivers",
        "durations",
        "journal",
        "opening",
        "options",
        "tasks",
    },
}
MAY_IMPORT["__main__"] = {"_extras", "cli"}
MAY_IMPORT["cli"] = set(MAY_IMPORT)  # The command line may start anything, and is a user of the public API.

PURE_OF_THE_JOURNAL = ("journal.history.gather", "journal.recovery.replay", "journal.maintenance.walk")

# Pure code gets time and entropy as arguments and reaches nothing outside itself.
PURE = ("core", "cluster", "wire", "search", "node", "dialects", "journal.frame", *PURE_OF_THE_JOURNAL)
IMPURE_MODULES = {
    *("time", "datetime", "random", "secrets"),
    *("os", "socket", "select", "selectors", "ssl", "subprocess", "logging"),
    *("asyncio", "threading", "multiprocessing"),
}

# Where jobs are handled, and so where `.state = ` can only mean a job's.
STATE_PACKAGES = ("core", "dialects")
STATE_WRITER = "penstock.core.states"
COPY_STATE_WRITER = "penstock.cluster.copy_states"

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
# `penstock` in the registry is another project. A line may name extras, or an installation by pip, pipx or uv.
OTHER_PROJECT = re.compile(
    r"(?<![\w-])penstock\[[a-z]"
    r"|\b(?:pip|pip3|pipx|uv) (?:install|add|tool install|pip install) [^`|;&]*(?<![\w./=-])penstock(?![\w./-])"
)
WORKPLACE = re.compile(r"(?<![\w.])/(?:work|root)/")
# A folder with more modules hides its structure. Sort them into subfolders by topic.
MODULES_MAX = 30


# ---- Reading the tree ------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: dict[str, Path] = {module_name(path): path for path in sorted(SRC.glob("penstock/**/*.py"))}


def layer_of(module: str) -> str:
    """`penstock.core.job` is of `core`; `penstock` itself is of `penstock`."""
    return module.removeprefix("penstock.").split(".")[0]


def below(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"penstock.{package}.")


def imports(source: str, module: str) -> Iterator[str]:
    """Every module imported anywhere in the source: late imports and those for type checkers count too."""
    # What the dots of a relative import count from: the package a module is in. A package is in itself.
    is_package = module in MODULES and MODULES[module].name == "__init__.py"
    here = module.split(".")[: None if is_package else -1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from penstock.core import job` imports a module, `from penstock.core.job import Job` a name in one.
                name = f"{origin}.{alias.name}"
                yield name if name in MODULES or name.removeprefix("penstock.") in MAY_IMPORT else origin


def tracked_files() -> list[Path]:
    """What git tracks or would track; in a copy without git, everything outside the folders that tools make."""
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        made = re.compile(r"\.git|\.venv|build|dist|__pycache__|\.\w+_cache|\.hypothesis|.*\.egg-info")
        listed = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if not any(made.fullmatch(part) for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in (ROOT / name for name in listed if name) if path.is_file()]


# ---- The rules -------------------------------------------------------------------------------------------------------


def upward_imports(source: str, module: str) -> list[str]:
    own = layer_of(module)
    if own not in MAY_IMPORT:
        return [f"{module}: `{own}` has no row in MAY_IMPORT"]
    allowed = MAY_IMPORT[own] | {own}
    return [
        f"{module} imports {target}, but {own} may import only {sorted(allowed)}"
        for target in imports(source, module)
        if target.split(".")[0] == "penstock" and layer_of(target) not in allowed
    ]


def import_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one cycle, in order; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def impure_imports(source: str, module: str) -> list[str]:
    if not any(below(module, package) for package in PURE):
        return []
    found = {target.split(".")[0] for target in imports(source, module)} & IMPURE_MODULES
    return [f"{module} is pure and imports {name}" for name in sorted(found)]


def state_writes(source: str, module: str) -> list[str]:
    """Assignments to `.state`. An object's own first value, in its __init__, is no change of state."""
    if module == STATE_WRITER or not any(below(module, package) for package in STATE_PACKAGES):
        return []
    tree = ast.parse(source)
    first_values = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return [
        f"{module}:{node.lineno} writes .state; only {STATE_WRITER} may"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "state"
        and not isinstance(node.ctx, ast.Load)
        and node not in first_values
    ]


def copy_state_writes(source: str, module: str) -> list[str]:
    """Assignments to the state of a copy, that is, of an object that is named `copy`."""
    if module == COPY_STATE_WRITER:
        return []
    return [
        f"{module}:{node.lineno} writes copy.state; only {COPY_STATE_WRITER} may"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr == "state"
        and not isinstance(node.ctx, ast.Load)
        and name_of(node.value) == "copy"
    ]


def private_uses_of_engine(source: str, module: str) -> list[str]:
    """Underscore attributes of an object that is named `engine`. Only the engine's own package uses them."""
    if below(module, "core"):
        return []
    return [
        f"{module}:{node.lineno} uses {node.attr} of an engine; give it a public name in core"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and name_of(node.value).removeprefix("_") == "engine"
    ]


def name_of(node: ast.expr) -> str:
    """`engine` for both `engine` and `self.host.engine`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def missing_docstring(source: str, module: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else [f"{module} does not say what it is"]


def lines_matching(pattern: re.Pattern[str], text: str, name: str) -> list[str]:
    return [f"{name}:{i}: {line.strip()}" for i, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def wrong_titles(text: str, name: str) -> list[str]:
    """A Markdown file has exactly one H1, not counting comments inside code blocks."""
    prose = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    count = len(re.findall(r"^# ", prose, flags=re.MULTILINE))
    return [] if count == 1 else [f"{name} has {count} titles"]


def crowded_folders(names: list[str]) -> list[str]:
    """Return the folders of these files that have more than MODULES_MAX Python files, not counting subfolders."""
    counts = Counter(str(PurePosixPath(name).parent) for name in names if name.endswith(".py"))
    return [
        f"{folder} has {count} Python files, but at most {MODULES_MAX} are allowed"
        for folder, count in sorted(counts.items())
        if count > MODULES_MAX
    ]


# ---- The tree keeps them ---------------------------------------------------------------------------------------------


Rule = Callable[[str, str], list[str]]  # From a text and its name to complaints.


def complaints_of_modules(rule: Rule) -> list[str]:
    return [line for module, path in MODULES.items() for line in rule(path.read_text(), module)]


def complaints_of_files(paths: list[Path], rule: Rule) -> list[str]:
    named = [(path.read_text(errors="replace"), str(path.relative_to(ROOT))) for path in paths]
    return [line for text, name in named for line in rule(text, name)]


def test_nobody_imports_upwards() -> None:
    assert not complaints_of_modules(upward_imports)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: set(imports(path.read_text(), module)) for module, path in MODULES.items()}
    assert not import_cycle(graph)


def test_pure_code_reaches_no_clock_disk_socket_or_dice() -> None:
    assert not complaints_of_modules(impure_imports)


def test_a_job_state_is_written_in_one_file_only() -> None:
    assert not complaints_of_modules(state_writes)


def test_the_state_of_a_copy_is_written_in_one_file_only() -> None:
    assert not complaints_of_modules(copy_state_writes)


def test_other_packages_use_only_public_names_of_the_engine() -> None:
    assert not complaints_of_modules(private_uses_of_engine)


def test_every_module_says_what_it_is() -> None:
    assert not complaints_of_modules(missing_docstring)


def test_nothing_in_src_is_left_for_later() -> None:
    assert not complaints_of_modules(lambda source, module: lines_matching(UNFINISHED, source, module))


def test_src_holds_no_compiled_code() -> None:
    assert not list(SRC.rglob("*.so"))


def test_no_file_names_the_machine_it_was_written_on() -> None:
    assert not complaints_of_files(tracked_files(), lambda text, name: lines_matching(WORKPLACE, text, name))


def test_every_text_installs_penstock_queue_and_not_the_other_project() -> None:
    assert not complaints_of_files(tracked_files(), lambda text, name: lines_matching(OTHER_PROJECT, text, name))


def test_every_markdown_file_has_one_title() -> None:
    markdown = [path for path in tracked_files() if path.suffix == ".md"]
    assert markdown
    assert not complaints_of_files(markdown, wrong_titles)


def test_no_folder_of_src_or_tests_has_more_than_thirty_modules() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in tracked_files()]
    assert not crowded_folders([name for name in names if name.startswith(("src/", "tests/"))])


# ---- The rules bite --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("penstock.core.job", "import penstock.wire.resp"),
        ("penstock.core.job", "from penstock.journal import writer"),
        ("penstock.core.job", "from penstock import server"),
        ("penstock.core.job", "from penstock import __version__"),
        ("penstock.core.job", "from ..wire import resp"),
        ("penstock.core.job", "def late():\n    from penstock.cli.main import app"),
        ("penstock.wire.resp", "from penstock.dialects import disque"),
        ("penstock.cluster.members", "from penstock.wire.bus import Frames"),
        ("penstock.server.net.http", "from penstock.dashboard import pages"),
        ("penstock.unheard_of", "import json"),
    ],
)
def test_an_upward_import_is_found(module: str, source: str) -> None:
    assert upward_imports(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("penstock.core.tube", "from penstock.core.job import Job\nfrom .states import move\nimport heapq"),
        ("penstock.dialects.disque", "import penstock.core.errors\nfrom penstock.wire.resp import Parser"),
        ("penstock.cli.main", "from penstock._version import __version__\nfrom ..core import engine"),
    ],
)
def test_a_downward_import_is_fine(module: str, source: str) -> None:
    assert not upward_imports(source, module)


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    assert list(imports("from .job import Job", "penstock.core")) == ["penstock.core.job"]
    assert list(imports("from .job import Job", "penstock.core.tube")) == ["penstock.core.job"]


def test_an_import_cycle_is_found() -> None:
    assert import_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not import_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


@pytest.mark.parametrize("name", sorted(IMPURE_MODULES))
@pytest.mark.parametrize("form", ["import {}", "import {}.x as y", "from {} import x", "if 1:\n    import {}"])
def test_an_impure_import_is_found_in_pure_code_only(name: str, form: str) -> None:
    source = form.format(name)
    for module in (
        "core.job",
        "cluster.node",
        "wire.resp",
        "dialects.disque",
        "journal.frame",
        "journal.recovery.replay",
        "journal.maintenance.walk",
    ):
        assert impure_imports(source, f"penstock.{module}")
    for module in ("server.clock", "journal.real_disk", "embedded"):
        assert not impure_imports(source, f"penstock.{module}")


@pytest.mark.parametrize(
    "source",
    [
        "job.state = READY",
        "self.jobs[i].state = 1",
        "job.state |= 1",
        "a, job.state = 1, 2",
        "del job.state",
        "def __init__(self, job):\n    job.state = 1",
        "def reset(self):\n    self.state = 1",
    ],
)
def test_a_state_written_outside_its_file_is_found(source: str) -> None:
    assert state_writes(source, "penstock.core.tube")
    assert state_writes(source, "penstock.dialects.disque")
    assert not state_writes(source, STATE_WRITER)
    assert not state_writes(source, "penstock.server.net.connection")


@pytest.mark.parametrize("source", ["copy.state = 1", "extra.copy.state = WARNED", "job.extra.copy.state, x = 1, 2"])
def test_a_copy_state_written_outside_its_file_is_found(source: str) -> None:
    assert copy_state_writes(source, "penstock.cluster.requeue")
    assert not copy_state_writes(source, COPY_STATE_WRITER)
    assert not copy_state_writes("x = copy.state\nimage.state = 1", "penstock.cluster.requeue")


@pytest.mark.parametrize("source", ["x = job.state", "state = 1", "def __init__(self):\n    self.state = 0"])
def test_reading_a_state_or_being_born_with_one_is_fine(source: str) -> None:
    assert not state_writes(source, "penstock.core.job")


@pytest.mark.parametrize(
    "source",
    [
        "engine._jobs",
        "engine._settle(now)",
        "self._engine._jobs[0] = 1",
        "self.host.engine._jobs.find(id)",
        "def late():\n    return place.engine._jobs",
    ],
)
def test_a_private_name_of_the_engine_is_found_outside_core_only(source: str) -> None:
    assert private_uses_of_engine(source, "penstock.journal.log")
    assert private_uses_of_engine(source, "penstock.embedded")
    assert not private_uses_of_engine(source, "penstock.core.claims")


@pytest.mark.parametrize("source", ["engine.jobs", "self._engine.jobs", "self._engine = engine", "engine.__class__"])
def test_a_public_name_of_the_engine_is_fine(source: str) -> None:
    assert not private_uses_of_engine(source, "penstock.journal.log")


def test_a_module_without_docstring_is_found() -> None:
    assert missing_docstring("x = 1", "m")
    assert not missing_docstring('"""What it is."""', "m")


def test_a_leftover_is_found() -> None:
    assert lines_matching(UNFINISHED, "x = 1  # " + "TO" + "DO: more", "m")
    assert not lines_matching(UNFINISHED, "todos = 1", "m")


def test_a_workplace_path_is_found() -> None:
    for path in ("/work", "/root"):
        assert lines_matching(WORKPLACE, f"see {path}/notes", "f")
        assert lines_matching(WORKPLACE, f'"{path}/notes"', "f")
    assert not lines_matching(WORKPLACE, "docs/work/root/x and ./work/x", "f")


def test_a_text_that_installs_the_other_project_is_found() -> None:
    name = "penstock"
    for line in (
        f"pip install '{name}[spark]'",
        f"Install `{name}[cli,server]`",
        f"pip install -U {name}",
        f"uv add {name}",
    ):
        assert lines_matching(OTHER_PROJECT, line, "f"), line
    for line in (
        "pip install 'penstock-queue[spark]'",
        "pip install penstock-queue; penstock serve",
        "`pip install penstock-queue`, then `penstock demo`",
        "pip install --target build/penstock .",
        "import penstock",
    ):
        assert not lines_matching(OTHER_PROJECT, line, "f"), line


def test_a_markdown_file_with_no_title_or_two_is_found() -> None:
    assert wrong_titles("text", "f")
    assert wrong_titles("# one\n\n# two", "f")
    assert not wrong_titles("# one\n\n```sh\n# a comment\n```\n\n## two", "f")


def test_a_crowded_folder_is_found() -> None:
    full = [f"src/p/m{number}.py" for number in range(MODULES_MAX)]
    assert crowded_folders([*full, "src/p/one_more.py"])
    assert not crowded_folders([*full, "src/p/sub/one_more.py", "src/p/py.typed", "src/one_more.py"])
