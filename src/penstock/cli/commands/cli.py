"""`penstock cli`: send raw protocol commands to a server."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import ERROR, REFUSED, USAGE, fail
from penstock.cli.targets import Target

if TYPE_CHECKING:
    import ssl

    from penstock.cli.console.command_runner import CommandRunner, ReplyFormat


def cli(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [WORD]...]", help="Command to send. Default: start a prompt, or read commands from stdin."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("-h", "--host", help="Host of the server. [127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option("-p", "--port", min=1, max=65_535, help="Port of the server. [7711]")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("-u", "--url", help="URL of the server: penstock://user:password@host:port. [env: PENSTOCK_URL]"),
    ] = None,
    password: Annotated[
        str,
        typer.Option(
            "-a",
            "--password",
            envvar="PENSTOCK_PASSWORD",
            show_envvar=True,
            help="Password. The process list shows this option to other users; the variable is not shown.",
        ),
    ] = "",
    user: Annotated[str, typer.Option("--user", help="User of the password. Default: the default user.")] = "",
    repeat: Annotated[
        int, typer.Option("-r", "--repeat", help="Run the command this many times. -1 means forever.")
    ] = 1,
    interval: Annotated[float, typer.Option("-i", "--interval", min=0, help="With -r: seconds between two runs.")] = 0,
    resp3: Annotated[bool, typer.Option("-3", help="Use version 3 of RESP.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS.")] = False,
    cacert: Annotated[str, typer.Option("--cacert", help="With --tls: file of trusted CA certificates.")] = "",
    insecure: Annotated[bool, typer.Option("--insecure", help="With --tls: do not verify the certificate.")] = False,
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--no-raw", help="Print raw bytes, or values with their types. Default: --no-raw on a terminal."
        ),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print answers as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print answers as JSON.")] = False,
) -> None:
    """Send raw protocol commands to a server: one from the shell, many from stdin, or at a prompt with completion.

    Exit codes: 1 if a command was refused, 4 if authentication failed or is missing, 75 if the server is unreachable.
    """
    from penstock.cli.console.command_runner import CommandRunner
    from penstock.cli.console.raw_connection import RawConnection, address_of
    from penstock.cli.console.reply_formats import format_csv, format_json, format_raw, format_text

    form: ReplyFormat
    if csv:
        form = format_csv
    elif json:
        form = format_json
    elif raw if raw is not None else not sys.stdout.isatty():
        form = format_raw
    else:
        form = format_text
    if (host or port) and url:
        fail("use either -h and -p, or --url", USAGE)
    if host or port:
        url = f"penstock://{_in_url(host or '127.0.0.1')}:{port or 7711}"
    context = _tls(cacert, insecure) if tls else None
    speaker = RawConnection(address_of(_server_url(url), user, password, context), resp3)
    conversation = CommandRunner(speaker, form)
    try:
        if words:
            _repeat(conversation, words, repeat, interval)
        elif sys.stdin.isatty():
            # Imported here, because only the prompt needs readline and not every Python has it.
            from penstock.cli.console.prompt import Prompt, history_file

            Prompt(conversation).run(history_file())
            return
        else:
            conversation.run_lines(line.decode("utf-8", "surrogateescape") for line in sys.stdin.buffer)
    finally:
        speaker.close()
    raise typer.Exit(REFUSED if conversation.is_unauthenticated else ERROR if conversation.failed else 0)


def _in_url(host: str) -> str:
    """Return a host as it is written in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _server_url(url: str | None) -> str:
    """Return `url`, or the URL of the default server if it is None. Exit if the default is a directory."""
    place = Target(url=url).address()
    if place.directory is not None:
        fail(f"{place.directory} is a directory, but this command needs a server; name one with -h and -p", USAGE)
    return place.url


def _repeat(conversation: CommandRunner, words: list[str], times: int, interval: float) -> None:
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
        fail(f"{cacert} cannot be read as a certificate file: {error.strerror or error}")
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
