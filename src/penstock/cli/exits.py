"""How the command line ends: its exit codes, and every failure as one sentence on standard error.

Commands raise, or `fail`; nobody else catches. What a command was refused, a server that is gone, a misspelt option:
here it becomes `penstock: …` and a code, and never a traceback. (`penstock check` has the codes of monitoring plugins.)
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from penstock._extras import extra_of, not_installed
from penstock.core import errors as e

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
NOTHING: Final = 5  # Nothing was there, or did not come in time.
TEMPORARY: Final = 75  # Try again later: no server, or it went away, or the directory is in use.
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "It was done.",
    ERROR: "It failed: a damaged log, a full disk, a file that cannot be read, a package that is not installed.",
    USAGE: "It was not understood: an unknown option, a value that makes no sense.",
    NOT_FOUND: "There is no such tube, job, session, context or queue.",
    REFUSED: "It was understood and refused: the job is not yours, the tube is full, the password is wrong.",
    NOTHING: "There was nothing to take, or what was waited for did not come in time.",
    TEMPORARY: "Try again later: there is no server, it went away, or another process has the directory open.",
    INTERRUPTED: "You pressed Ctrl-C.",
}

# What is refused with another code than REFUSED.
_CODES: Final[dict[type[Exception], int]] = {
    e.UnknownTube: NOT_FOUND,
    e.UnknownJob: NOT_FOUND,
    e.UnknownSession: NOT_FOUND,
    e.BadId: NOT_FOUND,
    e.WrongType: USAGE,
    e.OutOfRange: USAGE,
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
}

# Of the parser of arguments, whose own name differs between releases of typer.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])


def complain(message: str) -> None:
    """Say on standard error what went wrong."""
    # Not by typer, which goes round a progress bar that has put itself in the place of standard error.
    print(f"penstock: {printable(' '.join(message.split()))}", file=sys.stderr)


def fail(message: str, code: int = ERROR) -> NoReturn:
    """Say on standard error what went wrong, and end."""
    complain(message)
    raise typer.Exit(code)


def printable(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Return a text on its own lines, without characters that a terminal obeys."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return JSON without characters that a terminal obeys. They become escapes, so the value is the same."""
    if text.isprintable():
        return text
    # An end of line is never in a string of JSON, only between values.
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def code_of(error: Exception) -> int:
    """The exit code that an error stands for."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    if isinstance(error, e.CommandError):
        return REFUSED
    return TEMPORARY if isinstance(error, (ConnectionError, TimeoutError)) else ERROR


def sentence_of(error: Exception) -> str:
    """An error as one sentence."""
    if isinstance(error, e.DamagedJournal):
        return f"{error}; see `penstock journal repair`"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return as_clause(str(error)) or type(error).__name__


def as_clause(sentence: str) -> str:
    """A sentence as it stands behind `penstock: `, and before what else is to be said."""
    first, rest = sentence[:1], sentence[1:].removesuffix(".")
    return (first if rest[:1].isupper() or rest[:1] == "-" else first.lower()) + rest


@contextmanager
def reading_answers() -> Iterator[None]:
    """Raise BadAnswer for what goes wrong while an answer is read as it came: the server caused it, not a bug here."""
    try:
        yield
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise e.BadAnswer() from error


class Program(TyperGroup):
    """The command `penstock` itself."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and end the process."""
        options["standalone_mode"] = False
        code = OK
        try:
            result = super().main(*args, **options)
            code = result if isinstance(result, int) else OK
        except UsageError as error:
            code = USAGE
            complain_of_usage(error)
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run a command whose arguments were understood so far."""
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            # From now on Ctrl-C is an exception: see `penstock.__main__`.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            result = super().invoke(ctx)
            # A reader that has gone is met here, and not at the end of the interpreter, which would complain.
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Whoever reads has read enough.
            forget_output()
            raise typer.Exit(OK) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except (e.PenstockError, OSError) as error:
            fail(sentence_of(error), code_of(error))
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name)):
                fail(f"this command needs a package: {not_installed(error.name, extra)}")
            if "PENSTOCK_TRACEBACK" in os.environ:
                raise
            fail(f"this is a bug: {type(error).__name__}: {error}; PENSTOCK_TRACEBACK=1 shows where: please report it")


def forget_output() -> None:
    """Let what is still to be written go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _out_of_range(found: re.Match[str]) -> str:
    low, high = found["from"] or found["least"], found["to"] or found["most"]
    return (
        f"this must be at least {low}" if low and float(found["value"]) < float(low) else f"this must be at most {high}"
    )


# Releases of typer word errors differently; from 0.29 on, pydantic checks values.
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


def complain_of_usage(error: Any) -> None:
    """A command line that was not understood, in a sentence that says where to look."""
    message = error.message if hasattr(error, "possibilities") else error.format_message()
    if not message:
        return  # It was given nothing at all, and has shown its help.
    message = as_clause(message.strip()).replace(". Did you mean", "; did you mean")
    for pattern, words in _WORDINGS:
        message = pattern.sub(words, message)
    if near := get_close_matches(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or [], 1):
        message += f"; did you mean {near[0]}?"
    path = error.ctx.command_path if error.ctx is not None else "penstock"
    complain(f"{message}{'' if message.endswith('?') else ';'} see `{path} --help`")
