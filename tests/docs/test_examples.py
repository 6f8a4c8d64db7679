"""Every example of the documentation runs and prints the documented output. Every link has a target.

The ```python blocks of a page run in order and share one namespace. A ```text block right below one is its exact
output; without one it prints nothing. Shell blocks are parsed but not run, and may name only existing targets of make.
The tutorials and how-to guides run completely, including their shell blocks: see test_guides.py.
"""

import contextlib
import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.serving import PATIENCE_S

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The examples of these pages, and the ```py blocks of other pages, need a Spark session. tests/spark runs them in its
# own session, because starting one takes long.
SPARK_PAGES = ("spark.md", "spark-events.md", "spark-recipes.md", "pipeline.md")
# test_guides.py and test_moving_guides.py run these pages.
GUIDES = [path for path in PAGES if path.parent.name in ("tutorials", "how-to") and path.name not in SPARK_PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

# The examples of all pages together may sleep this long.
SLEEP_S_MAX = 0.1

# The ports of servers in the pages. The tests use other ports, because a server may be running on these.
SERVER_PORT = 7711
IPROTO_PORT = 3301

# Ids and timestamps differ between runs.
CHANGING = re.compile(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-|\(integer\) 1\d{12}\b")
MARK = "what was typed was answered"
_real_sleep = time.sleep


@dataclass
class Block:
    """One fenced block: its language, its first line in the page, its code, and its documented output."""

    language: str
    line: int
    code: str
    expected: str = ""


@dataclass
class Page:
    """One page, and the outputs of the examples that have run."""

    path: Path
    blocks: list[Block]
    namespace: dict[str, object] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    port: int = SERVER_PORT  # The RESP port of the page's server.
    iproto_port: int = IPROTO_PORT  # The IPROTO port of the page's server.

    def needs_server(self) -> bool:
        """Return whether the examples use a server."""
        ports = (str(SERVER_PORT), str(IPROTO_PORT))
        return any(block.language == "redis" or any(port in block.code for port in ports) for block in self.blocks)

    def run(self, block: Block) -> str:
        """Run the block, and the blocks before it that have not run. Return its output."""
        wanted = self.blocks.index(block)
        while len(self.outputs) <= wanted:
            self.outputs.append(self._execute(self.blocks[len(self.outputs)]))
        return self.outputs[wanted]

    def _execute(self, block: Block) -> str:
        if block.language == "redis":
            return typed(block.code, self.port)
        printed = io.StringIO()
        ports = {str(SERVER_PORT): str(self.port), str(IPROTO_PORT): str(self.iproto_port)}
        # Replace both ports in one pass, because a new port may contain the digits of the other old one.
        source = re.sub("|".join(ports), lambda found: ports[found[0]], block.code)
        # The empty lines make a traceback show the line of the page.
        code = compile("\n" * (block.line - 1) + source, str(self.path), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, self.namespace)
        return printed.getvalue()


def typed(session: str, port: int) -> str:
    """Repeat a session with redis-cli. Return it with today's replies, and with the ids and timestamps of the page."""
    lines = [line for line in session.splitlines() if line.startswith("> ")]
    script = "".join(f'{line[2:]}\nPING "{MARK}"\n' for line in lines)
    command = ["redis-cli", "-p", str(port), "--no-raw"]
    answers = subprocess.run(command, input=script, capture_output=True, check=False, text=True, timeout=60).stdout
    shown = "".join(f"{line}\n{answer}" for line, answer in zip(lines, answers.split(f'"{MARK}"\n'), strict=False))
    changing = iter(CHANGING.findall(session))
    return CHANGING.sub(lambda found: next(changing, found[0]), shown).replace("\n\n", "\n")


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page. A text block right below another block is the output of that block."""
    previous: Block | None = None
    end = 0
    for fence in FENCE.finditer(text):
        block = Block(fence[1], text.count("\n", 0, fence.start()) + 2, fence[2])
        adjacent = previous is not None and not text[end : fence.start()].strip()
        if block.language == "text" and adjacent and previous is not None:
            previous.expected = block.code
        yield block
        previous, end = block, fence.end()


def name_of(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


EXAMPLES: list[tuple[Page, Block]] = []
SPARK_EXAMPLES: list[Page] = []
SHELL: list[tuple[Path, Block]] = []
for _path in PAGES:
    _blocks = list(blocks_of(_path.read_text()))
    _runnable = [block for block in _blocks if block.language in ("python", "redis")]
    _page = Page(_path, _runnable, {"__name__": "__main__"})
    if _path in GUIDES:
        pass
    elif _path.name in SPARK_PAGES:
        SPARK_EXAMPLES += [_page] if _page.blocks else []
    else:
        EXAMPLES += [(_page, block) for block in _page.blocks]
        if _about_spark := [block for block in _blocks if block.language == "py"]:
            SPARK_EXAMPLES.append(Page(_path, _about_spark))
    SHELL += [(_path, block) for block in _blocks if block.language in ("sh", "bash", "console")]


@pytest.fixture(scope="module")
def slept() -> Iterator[list[float]]:
    """Record how long the examples sleep."""
    seconds: list[float] = []

    def sleep(duration: float) -> None:
        seconds.append(duration)
        _real_sleep(duration)

    time.sleep = sleep
    yield seconds
    time.sleep = _real_sleep


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, tuple[int, int]]]:
    """Start a server for each page that needs one. Return the ports by page."""
    with contextlib.ExitStack() as running:
        yield {
            page.path: running.enter_context(a_server(tmp_path_factory.mktemp("server")))
            for page in {page.path: page for page, _ in EXAMPLES}.values()
            if page.needs_server()
        }


@contextlib.contextmanager
def a_server(directory: Path) -> Iterator[tuple[int, int]]:
    """Run a server as a reader would. Return its ports."""
    port, iproto_port = free_port(), free_port()
    ports = ["--port", str(port), "--iproto-port", str(iproto_port)]
    command = [sys.executable, "-m", "penstock", "serve", *ports, "--dir", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "server started: " in process.stdout.readline()
        try:
            yield port, iproto_port
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(("page", "block"), [pytest.param(p, b, id=name_of(p.path, b.line)) for p, b in EXAMPLES])
def test_an_example_runs_and_prints_what_the_page_says(
    page: Page,
    block: Block,
    slept: list[float],
    needs: Callable[[object, str], None],
    servers: dict[Path, tuple[int, int]],
) -> None:
    if page.needs_server():
        needs(shutil.which("redis-cli"), "redis-cli is not installed (redis-tools)")
        page.port, page.iproto_port = servers[page.path]
    assert page.run(block) == (block.code if block.language == "redis" else block.expected)
    assert sum(slept) <= SLEEP_S_MAX, "the examples sleep too long"


def commands_of(block: Block) -> str:
    """Return the commands of a shell block. In a console block, these are the lines after a prompt."""
    if block.language != "console":
        return block.code
    return "".join(line[2:] for line in block.code.splitlines(keepends=True) if line.startswith("$ "))


@pytest.mark.parametrize(("path", "block"), [pytest.param(p, b, id=name_of(p, b.line)) for p, b in SHELL])
def test_a_shell_example_is_well_formed(path: Path, block: Block, needs: Callable[[object, str], None]) -> None:
    bash = shutil.which("bash")
    needs(bash, "bash is not installed")
    checked = subprocess.run([str(bash), "-n"], input=commands_of(block), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: name_of(path, 1))
def test_a_page_names_only_targets_that_make_has(path: Path) -> None:
    text = path.read_text()
    shell = "".join(commands_of(block) for _path, block in SHELL if _path == path)
    named = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"\bmake ([a-z-]+)", shell)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: name_of(path, 1))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    prose = FENCE.sub("", path.read_text())
    local = [link.partition("#")[0] for link in LINK.findall(prose) if "://" not in link]
    assert not [link for link in local if link and not (path.parent / link).exists()]


def test_an_output_belongs_to_the_block_right_above() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nx = 1\n```\n\nwords\n\n```text\n2\n```\n"
    first, _, second, _ = blocks_of(page)
    assert (first.line, first.expected) == (2, "1\n")
    assert (second.line, second.expected) == (10, "")


def test_only_what_follows_a_prompt_is_a_command() -> None:
    assert commands_of(Block("console", 1, "$ make test\n3 passed (in 1 s\n$ make\n")) == "make test\nmake\n"
