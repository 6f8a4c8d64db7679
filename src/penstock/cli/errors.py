"""Exit codes of the command line, and the one place where errors become messages on standard error.

Commands raise errors or call `fail`. `Program` catches every error, such as a refused command, a lost server or a
misspelt option. It prints `penstock: …` and exits with a code, never with a traceback. `penstock check` is different:
it uses the exit codes of monitoring plugins.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from penstock._extras import extra_of, not_installed
from penstock.core import errors as e
from penstock.lake.errors import LakeInUse, NoLake
from penstock.wire.quoting import printable

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
NOTHING: Final = 5  # There was no job, the awaited result did not arrive in time, or an audit cannot tell.
TEMPORARY: Final = 75  # Try again later: the server is unreachable, or the directory is in use.
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "Success.",
    ERROR: "Failure, for example a damaged log, a full disk, an unreadable file or a package that is not installed.",
    USAGE: "Usage error, for example an unknown option or an invalid value.",
    NOT_FOUND: "The tube, job, session, context, queue or lake does not exist.",
    REFUSED: "The command was refused, for example because the tube is full or the password is wrong.",
    NOTHING: "There was no job to take, the awaited result did not arrive in time, or an audit cannot tell.",
    TEMPORARY: "Try again later: the server is unreachable, or another process has the directory or the lake open.",
    INTERRUPTED: "You pressed Ctrl-C.",
}

# Exit codes of errors. All other refusals exit with REFUSED.
_CODES: Final[dict[type[Exception], int]] = {
    e.UnknownTube: NOT_FOUND,
    e.UnknownJob: NOT_FOUND,
    e.UnknownSession: NOT_FOUND,
    e.BadId: NOT_FOUND,
    e.WrongType: USAGE,
    e.OutOfRange: USAGE,
    e.BadHeaders: USAGE,
    e.BadName: USAGE,
    e.BadRetry: USAGE,
    e.UnknownType: USAGE,
    e.BadUrl: USAGE,
    e.BadSyntax: USAGE,
    e.DamagedJournal: ERROR,
    e.JournalFailed: ERROR,
    e.Interrupted: ERROR,
    e.InUse: TEMPORARY,
    e.Closed: TEMPORARY,
    NoLake: NOT_FOUND,
    LakeInUse: TEMPORARY,
}

# The usage error of the argument parser. Its name differs between releases of typer.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])


def print_error(message: str) -> None:
    # typer.echo would bypass a progress bar that has replaced sys.stderr.
    print(f"penstock: {printable(' '.join(message.split()))}", file=sys.stderr)


def fail(message: str, code: int = ERROR) -> NoReturn:
    """Print an error message on standard error, and exit."""
    print_error(message)
    raise typer.Exit(code)


def printable_lines(text: str) -> str:
    """Return a text with its line ends, and with all other control characters escaped."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return JSON with control characters as JSON escapes. The value stays the same."""
    if text.isprintable():
        return text
    # A JSON string never contains a bare newline. A newline can only stand between values.
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def exit_code_of(error: Exception) -> int:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    if isinstance(error, e.CommandError):
        return REFUSED
    return TEMPORARY if isinstance(error, (ConnectionError, TimeoutError)) else ERROR


def message_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, e.DamagedJournal) and not isinstance(error, e.NewerJournal):
        return f"{error}; see `penstock journal repair`"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return as_clause(str(error)) or type(error).__name__


def as_clause(sentence: str) -> str:
    """Return a sentence without its capital letter and full stop, for the middle of a message."""
    first, rest = sentence[:1], sentence[1:].removesuffix(".")
    return (first if rest[:1].isupper() or rest[:1] == "-" else first.lower()) + rest


@contextmanager
def parsing_answer() -> Iterator[None]:
    """Turn errors of the block into BadAnswer. The block parses a server's answer, so an error means a wrong answer."""
    try:
        yield
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise e.BadAnswer() from error


# The start of a bracket that rich reads as markup, unless it is escaped already.
_MARKUP: Final = re.compile(r"(?<!\\)\[(?=[a-z#/@])")


class Program(TyperGroup):
    """The command `penstock` itself."""

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        _prepare_help(self)
        code = OK
        try:
            result = super().main(*args, **options)
            code = result if isinstance(result, int) else OK
        except UsageError as error:
            code = USAGE
            print_usage_error(error)
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was parsed, and turn its errors into messages and exit codes."""
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            # From now on Ctrl-C raises KeyboardInterrupt. See `penstock.__main__`.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = super().invoke(ctx)
            # If the reader of the pipe has gone, flushing raises here instead of at interpreter exit, which prints it.
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The reader of the pipe has closed it, for example `head`.
            discard_output()
            raise typer.Exit(OK) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (e.PenstockError, OSError) as error:
            fail(message_of(error), exit_code_of(error))
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name)):
                fail(f"this command needs a package: {not_installed(error.name, extra)}")
            if "PENSTOCK_TRACEBACK" in os.environ:
                raise
            fail(f"internal error: {type(error).__name__}: {error}; PENSTOCK_TRACEBACK=1 shows where; please report it")


def _prepare_help(command: Any) -> None:
    """Prepare the help of a command and of its subcommands for the terminal.

    Lines of a paragraph are joined, so that the terminal wraps them at its own width. Square brackets in the help of an
    option are escaped, because rich would drop them as markup. Some releases of typer show a type for flags, and a
    second pair of brackets around the names of optional arguments. This function removes both.
    """
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    for param in command.params:
        if param.help and command.rich_markup_mode == "rich":
            param.help = _MARKUP.sub(r"\\[", param.help)
        if param.param_type_name == "argument":
            if (name := param.metavar) is not None:
                param._usage_display_name = partial(str, name)
        elif param.is_flag and param.metavar is None:
            param.metavar = ""
    for each in getattr(command, "commands", {}).values():
        _prepare_help(each)


def discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _out_of_range(found: re.Match[str]) -> str:
    low, high = found["from"] or found["least"], found["to"] or found["most"]
    return (
        f"this must be at least {low}" if low and float(found["value"]) < float(low) else f"this must be at most {high}"
    )


# Releases of typer word errors differently. From 0.29 on, pydantic checks values.
_WORDINGS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile("Value error, "), ""),
    (re.compile(r"'[^']*' is not a valid (int|float)( range)?$"), "this is not a number"),
    (re.compile(r"Input should be a valid (integer|number)\b.*$"), "this is not a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)$"), r"this must be at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+)$"), r"this must be at most \1"),
    (
        re.compile(
            r"(?P<value>-?[\d.]+) is not in the range "
            r"((?P<from>[\d.]+)<=x<=(?P<to>[\d.]+)|x>=(?P<least>[\d.]+)|x<=(?P<most>[\d.]+))$"
        ),
        _out_of_range,
    ),
)


def print_usage_error(error: Any) -> None:
    """Print a usage error as one sentence that names the help page."""
    message = error.message if hasattr(error, "possibilities") else error.format_message()
    if not message:
        return  # The command was called without arguments and has printed its help.
    message = as_clause(message.strip()).replace(". Did you mean", "; did you mean")
    for pattern, words in _WORDINGS:
        message = pattern.sub(words, message)
    if near := get_close_matches(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or [], 1):
        message += f"; did you mean {near[0]}?"
    path = error.ctx.command_path if error.ctx is not None else "penstock"
    print_error(f"{message}{'' if message.endswith('?') else ';'} see `{path} --help`")
