"""`penstock cli`: any command, said to a server as it is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import ERROR, REFUSED, USAGE, fail
from penstock.cli.target import Target

if TYPE_CHECKING:
    import ssl

    from penstock.cli.conversation import Conversation, Form


def cli(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [WORD]...]", help="A command to run. Without one: a prompt, or lines of stdin."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("-h", "--host", help="Where the server is. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option("-p", "--port", min=1, max=65_535, help="Its port. [7711]")] = None,
    url: Annotated[
        str | None,
        typer.Option("-u", "--url", help="Both and more: penstock://user:password@host:port. [env: PENSTOCK_URL]"),
    ] = None,
    password: Annotated[
        str,
        typer.Option(
            "-a",
            "--password",
            envvar="PENSTOCK_PASSWORD",
            show_envvar=True,
            help="The password, if one is needed. Other users see it in the process list, but not in the variable.",
        ),
    ] = "",
    user: Annotated[str, typer.Option("--user", help="Whose password it is, if not everybody's.")] = "",
    repeat: Annotated[int, typer.Option("-r", "--repeat", help="Run the command so often; -1: without end.")] = 1,
    interval: Annotated[
        float, typer.Option("-i", "--interval", min=0, help="With -r: how many seconds to wait in between.")
    ] = 0,
    resp3: Annotated[bool, typer.Option("-3", help="Speak version 3 of RESP.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS.")] = False,
    cacert: Annotated[str, typer.Option("--cacert", help="With --tls: the file of who vouches for the server.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="With --tls: trust whoever answers.")] = False,
    raw: Annotated[
        bool | None,
        typer.Option("--raw/--no-raw", help="Bytes as they are, or with their types. Default: --no-raw on a terminal."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Answers as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Answers as JSON.")] = False,
) -> None:
    """Say any command to a server, as it is: one from the shell, many from stdin, or at a prompt with help.

    Exit codes: 1 a command was refused, 4 authentication failed or is missing, 75 no server, or it went away.
    """
    from penstock.cli.conversation import Conversation
    from penstock.cli.shown import as_csv, as_json, as_raw, as_text
    from penstock.cli.speaker import Speaker, address_of

    form: Form
    if csv:
        form = as_csv
    elif json:
        form = as_json
    elif raw if raw is not None else not sys.stdout.isatty():
        form = as_raw
    else:
        form = as_text
    if (host or port) and url:
        fail("give -h and -p, or --url", USAGE)
    if host or port:
        url = f"penstock://{_in_url(host or '127.0.0.1')}:{port or 7711}"
    speaker = Speaker(address_of(_server_url(url), user, password, _tls(cacert, insecure) if tls else None, resp3))
    conversation = Conversation(speaker, form)
    try:
        if words:
            _repeat(conversation, words, repeat, interval)
        elif sys.stdin.isatty():
            # Not every Python has readline, and only a prompt needs it.
            from penstock.cli.prompt import Prompt, history_file

            Prompt(conversation).run(history_file())
            return
        else:
            conversation.run_lines(line.decode("utf-8", "surrogateescape") for line in sys.stdin.buffer)
    finally:
        speaker.close()
    raise typer.Exit(REFUSED if conversation.is_locked_out else ERROR if conversation.failed else 0)


def _in_url(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _server_url(url: str | None) -> str:
    """This URL, or else that of the server that every other command would go to."""
    place = Target(url=url).place()
    if place.directory is not None:
        fail(f"{place.directory} is a directory, and a prompt speaks to a server; name one with -h and -p", USAGE)
    return place.url


def _repeat(conversation: Conversation, words: list[str], times: int, interval: float) -> None:
    done = 0
    while done != times:
        if done:
            time.sleep(interval)
        conversation.run(words)
        done += 1


def _tls(cacert: str, insecure: bool) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=cacert or None)
    except (OSError, ssl.SSLError) as error:
        fail(f"{cacert} cannot be used as a file of certificates: {error.strerror or error}")
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
