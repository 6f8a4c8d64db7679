"""The screen of `penstock top`: tabs with tables that are refreshed regularly, and keys.

Refreshes and commands run in threads and pass their results to the screen's thread with `call_later`, so the screen
stays responsive when the server is slow. Commands that destroy data have capital letters as keys. Before such a
command runs, the screen asks for confirmation, with the number of jobs and the name of the tube.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from penstock.cli.output import WIDTH_MAX
from penstock.cli.top.data import VIEWS, QueueReader, ViewData
from penstock.core.errors import PenstockError
from penstock.report.units import duration_text
from penstock.wire.quoting import printable

# After this many seconds without an answer, the status line reports the server as silent.
_SILENT_S: Final = 3.0


class Rows(DataTable[Text], inherit_bindings=False):
    """The table of the current tab. It has the focus, except while a filter is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", "Up", show=False),
        Binding("down,j", "cursor_down", "Down", show=False),
        Binding("pageup,h", "page_up", "Page up", show=False),
        Binding("pagedown,l", "page_down", "Page down", show=False),
        Binding("home,g", "scroll_home", "First", show=False),
        Binding("end,G", "scroll_end", "Last", show=False),
        Binding("enter", "app.open", "Open", show=False),
        Binding("left,shift+tab", "app.turn(-1)", "Previous tab", show=False),
        Binding("right,tab", "app.turn(1)", "Next tab", show=False),
    ]


class Confirm(ModalScreen[bool]):
    """A yes-or-no question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y", "dismiss(True)", "Yes"),
        Binding("n,N,escape,q", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        yield Vertical(Static(self.question, markup=False), Static("y yes   n no", markup=False), id="box")


class Help(ModalScreen[None]):
    """The list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        yield Vertical(Static(KEYS, markup=False), id="box")


class JobDetails(ModalScreen[None]):
    """The properties and the history of a job."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Close"),
        Binding("down,j", "scroll(1)", "Down"),
        Binding("up,k", "scroll(-1)", "Up"),
    ]

    def __init__(self, details: str) -> None:
        super().__init__()
        self.details = details

    def compose(self) -> ComposeResult:
        yield VerticalScroll(Static(self.details, markup=False), id="details")

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


KEYS: Final = """\
left right tab   change the tab
j k up down      move by row       h l  move by page      g G  first, last row
enter            show the jobs of the tube, or one job with its history
/                filter rows by text      escape  show all rows
p                pause or resume          r  refresh now
q                quit

Capitals are destructive and ask first:
K   kick all buried jobs of the tube
D   delete the job
T   delete all jobs of the tube"""


class Top(App[None]):
    """The application of `penstock top`."""

    TITLE = "penstock top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #status { height: 1; padding: 0 1; }
    #status { color: $text-muted; }
    #status.silent { color: $error; text-style: bold; }
    #empty { padding: 1 2; color: $text-muted; display: none; }
    #filter { display: none; height: 1; border: none; }
    Rows { height: 1fr; }
    ModalScreen { align: center middle; }
    #box { width: auto; max-width: 80%; height: auto; border: round $primary; padding: 1 2; }
    #box Static { width: auto; }
    #details { width: 90%; height: auto; max-height: 90%; border: round $primary; padding: 1 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("p", "pause", "Pause"),
        Binding("r", "look", "Refresh", show=False),
        Binding("K", "kick", "Kick all", key_display="K"),
        Binding("D", "delete", "Delete job", key_display="D"),
        Binding("T", "truncate", "Empty tube", key_display="T"),
        Binding("escape", "no_filter", "All rows", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self, watcher: QueueReader, place: str, every_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._watcher = watcher
        self._place = place
        self._every_s = every_s  # 0 disables the periodic refresh.
        self._clock = clock
        self._answered = clock()
        self._why = ""  # The error of the last refresh.
        self._paused = False
        self._looking = False
        self._view = VIEWS[0]
        self._tube = ""
        self._sheet = ViewData((), {}, "Loading …")
        self._columns: list[tuple[str, int]] = []  # Heading and width of each column.
        self._cursors: dict[str, str] = {}  # The key of the selected row of each tab.

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        tabs = Tabs(*(Tab(view.capitalize(), id=view) for view in VIEWS))
        tabs.can_focus = False
        yield tabs
        yield Static(id="empty", markup=False)
        yield Rows(cursor_type="row", zebra_stripes=True)
        yield Input(id="filter", placeholder="only rows with this text", compact=True)
        yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Rows).focus()
        self._show()
        self.action_look()
        if self._every_s:
            self.set_interval(self._every_s, self._tick)

    # ---- Refreshing --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._show_status()
        if not self._paused:
            self.action_look()

    def action_look(self) -> None:
        """Start a refresh, unless one is running."""
        if not self._looking:
            self._looking = True
            view, tube = self._view, self._tube
            self.run_worker(lambda: self._look(view, tube), thread=True, group="look")

    def _look(self, view: str, tube: str) -> None:
        try:
            sheet = self._watcher.read_view(view, tube)
        except (PenstockError, OSError) as error:
            self.call_later(self._look_failed, str(error))
        else:
            self.call_later(self._looked, view, tube, sheet)

    def _looked(self, view: str, tube: str, sheet: ViewData) -> None:
        self._looking = False
        self._answered, self._why = self._clock(), ""
        if (view, tube) == (self._view, self._tube):
            self._sheet = sheet
            self._show()
        else:
            # The user has changed the tab meanwhile.
            self.action_look()

    def _look_failed(self, why: str) -> None:
        self._looking = False
        self._why = why
        self._show_status()

    # ---- Showing -----------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        table, sheet = self.query_one(Rows), self._sheet
        wanted = self.query_one("#filter", Input).value.lower()
        rows = {key: row for key, row in sheet.rows.items() if wanted in "\n".join(row).lower()}
        with self.prevent(DataTable.RowHighlighted):
            self._lay_out(table, sheet)
            for key, row in rows.items():
                table.add_row(*map(_cell, row), key=key)
            chosen = self._cursors.get(self._view, "")
            if chosen in rows:
                table.move_cursor(row=list(rows).index(chosen))
        self._choose()
        empty = self.query_one("#empty", Static)
        empty.display = not rows
        empty.update(printable(sheet.empty if not sheet.rows else f"No row has {wanted!r} in it."))
        self.query_one("#summary", Static).update(printable(f"{self._place}  {sheet.summary}"))
        self._show_status()

    def _lay_out(self, table: Rows, sheet: ViewData) -> None:
        """Clear the table, and set the widths of its columns. A refresh never makes a column narrower.

        The widths are set explicitly, because a table that computes them may be painted before they are known.
        """
        cells = [sheet.headings, *sheet.rows.values()]
        before = self._columns if [heading for heading, _ in self._columns] == list(sheet.headings) else []
        wide = [max(cell_len(_fitting(cell)) for cell in column) for column in zip(*cells)]
        wide = [max(now, then) for now, (_, then) in zip(wide, before)] or wide
        columns = list(zip(sheet.headings, wide))
        table.clear(columns=columns != self._columns)
        if columns != self._columns:
            self._columns = columns
            for heading, width in columns:
                table.add_column(heading, width=width)

    def _show_status(self) -> None:
        status = self.query_one("#status", Static)
        silent_s = self._clock() - self._answered
        silent = bool(self._why) or (self._looking and silent_s >= _SILENT_S)
        status.set_class(silent, "silent")
        if silent:
            why = f": {self._why}" if self._why else ""
            status.update(printable(f"no answer for {duration_text(round(silent_s) * 1_000)}{why}"))
        elif self._paused:
            status.update("paused; press p to resume")
        else:
            status.update(f"every {self._every_s:g} s" if self._every_s else "")

    @on(DataTable.RowHighlighted)
    def _choose(self) -> None:
        """Record the row under the cursor. In the first tab it selects the tube for the other tabs."""
        table = self.query_one(Rows)
        if not table.row_count:
            return
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        self._cursors[self._view] = key
        if self._view == "tubes":
            self._tube = key

    @on(Tabs.TabActivated)
    def _turned(self, event: Tabs.TabActivated) -> None:
        view = event.tab.id or VIEWS[0]
        if view != self._view:
            self._view = view
            self._sheet = ViewData((), {}, "Loading …")
            self._show()
            self.action_look()

    # ---- Keys --------------------------------------------------------------------------------------------------------

    def action_turn(self, by: int) -> None:
        at = (VIEWS.index(self._view) + by) % len(VIEWS)
        self.query_one(Tabs).active = VIEWS[at]

    def action_open(self) -> None:
        if self._view == "tubes":
            self.query_one(Tabs).active = "jobs"
        elif self._view == "jobs" and self.query_one(Rows).row_count:
            id, watcher = self._cursors.get("jobs", ""), self._watcher
            self._try(lambda: self.call_later(self.push_screen, JobDetails(watcher.describe_job(id))))

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._show_status()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_no_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(Rows).focus()
        self._show()

    @on(Input.Changed)
    def _filter_changed(self) -> None:
        self._show()

    @on(Input.Submitted)
    def _filter_done(self) -> None:
        self.query_one(Rows).focus()

    # ---- Destructive commands ----------------------------------------------------------------------------------------

    def action_kick(self) -> None:
        tube, watcher = self._tube, self._watcher
        self._change_jobs(
            lambda: watcher.count(tube, "buried"),
            f"tube {tube} has no buried jobs",
            lambda number: f"Kick {_jobs(number, 'buried')} of tube {tube}?",
            lambda number: f"kicked {_jobs(watcher.kick(tube, number))} of tube {tube}",
        )

    def action_truncate(self) -> None:
        tube, watcher = self._tube, self._watcher
        self._change_jobs(
            lambda: watcher.count(tube),
            f"tube {tube} is empty",
            lambda number: f"Delete all {_jobs(number)} of tube {tube}, in any state?",
            lambda number: f"deleted {_jobs(watcher.truncate(tube))} of tube {tube}",
        )

    def action_delete(self) -> None:
        id, tube, watcher = self._cursors.get("jobs", ""), self._tube, self._watcher
        if self._view == "jobs" and self.query_one(Rows).row_count:
            question = f"Delete 1 job of tube {tube}: {id}?"
            self._confirm(question, lambda: f"deleted {_jobs(watcher.delete(id))} of tube {tube}")

    def _change_jobs(
        self, count: Callable[[], int], none: str, question: Callable[[int], str], change: Callable[[int], str]
    ) -> None:
        """Count jobs of the selected tube, and change them if the user agrees. If there are none, report `none`."""

        def ask() -> None:
            if number := count():
                self.call_later(self._confirm, question(number), lambda: change(number))
            else:
                self.call_later(self._report_done, none)

        if self._tube:
            self._try(ask)

    def _confirm(self, question: str, change: Callable[[], str]) -> None:
        """Ask the user. If the answer is yes, run `change` in a thread and report the words that it returns."""

        def answered(yes: bool | None) -> None:
            if yes:
                self._try(lambda: self.call_later(self._report_done, change()))

        self.push_screen(Confirm(printable(question)), answered)

    def _try(self, what: Callable[[], object]) -> None:
        """Run `what` in a thread, and report an error of the queue."""

        def run() -> None:
            try:
                what()
            except (PenstockError, OSError) as error:
                self.call_later(self.notify, printable(str(error)), severity="error", markup=False)

        self.run_worker(run, thread=True, group="commands")

    def _report_done(self, words: str) -> None:
        self.notify(printable(words), markup=False)
        self.action_look()


def _cell(text: str) -> Text:
    """Return a cell of the table. Numbers are aligned to the right."""
    return Text(_fitting(text), justify="right" if text.replace(",", "").isdigit() else "left")


def _fitting(text: str) -> str:
    """Return a text on one line, cut to the maximum width of a column."""
    shown = printable(text[: WIDTH_MAX + 1])
    return shown if len(shown) <= WIDTH_MAX else f"{shown[: WIDTH_MAX - 1]}…"


def _jobs(number: int, kind: str = "") -> str:
    return " ".join(filter(None, (f"{number:,}", kind, "job" if number == 1 else "jobs")))
