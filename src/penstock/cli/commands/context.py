"""`penstock context`: names for servers and queue directories."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.contexts import Contexts
from penstock.cli.errors import NOT_FOUND, fail, message_of
from penstock.cli.option_values import Yes
from penstock.cli.options import CommandGroup
from penstock.cli.output import Column, Output, column, confirm
from penstock.cli.targets import Target, parse_address
from penstock.core.errors import PenstockError

app = CommandGroup(help="Name servers and queue directories, and select the default one.")


def _names(incomplete: str) -> list[str]:
    return [name for name in Contexts.load().urls if name.startswith(incomplete)]


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=_names)]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits, dots, dashes and _.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of a server, or path of a queue directory.")],
    select: Annotated[bool, typer.Option("--select", help="Also select it as the default.")] = False,
    *,
    out: Output,
) -> None:
    """Add a context: a name for a server or a queue directory. An existing context of this name is replaced."""
    contexts = Contexts.load()
    place = parse_address(url)
    contexts.add(name, str(place))
    if select:
        contexts.select(name)
    contexts.save()
    out.report_done(
        f"{name} is {place.without_password()}{', and selected' if select else ''}",
        name=name,
        url=place.without_password(),
        selected=select,
    )


@app.command("ls")
def list_(*, out: Output) -> None:
    """List the contexts. Passwords are not shown."""
    contexts = Contexts.load()
    rows = [
        {"name": name, "url": parse_address(url).without_password(), "selected": name == contexts.selected}
        for name, url in sorted(contexts.urls.items())
    ]
    marked = Column("", lambda row: "*" if row["selected"] else " ")
    out.table(
        rows, [marked, column("name"), column("url")], "No context yet: penstock context add prod penstock://HOST:7711"
    )


@app.command()
def select(name: Name, *, out: Output) -> None:
    """Select the default context. Commands without --url, --dir and --context use it."""
    contexts = Contexts.load()
    contexts.select(name)
    contexts.save()
    out.report_done(f"{name} is selected", selected=name, previous=contexts.previous)


@app.command()
def previous(*, out: Output) -> None:
    """Select the context that was selected before."""
    contexts = Contexts.load()
    if contexts.previous is None:
        fail("no context was selected before; see `penstock context ls`", NOT_FOUND)
    contexts.select(contexts.previous)
    contexts.save()
    out.report_done(f"{contexts.selected} is selected", selected=contexts.selected, previous=contexts.previous)


@app.command("rm")
def remove(name: Name, yes: Yes = False, *, out: Output) -> None:
    """Remove a context. The queue that it names is not changed."""
    contexts = Contexts.load()
    contexts.url_of(name)
    confirm(f"Remove the context {name}?", yes)
    contexts.remove(name)
    contexts.save()
    out.report_done(f"{name} is removed", removed=name)


@app.command()
def validate(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of the context. Default: all contexts.", autocompletion=_names),
    ] = None,
    *,
    out: Output,
) -> None:
    """Connect to the queue of one context or of all, and report whether it answers. Exit with 1 if not."""
    contexts = Contexts.load()
    names = sorted(contexts.urls) if name is None else [name]
    rows = [_validated(each, contexts.url_of(each)) for each in names]
    out.table(rows, [column("name"), column("url"), column("answer")], "No context yet.")
    if any(not row["ok"] for row in rows):
        raise typer.Exit(1)


def _validated(name: str, url: str) -> dict[str, object]:
    result: dict[str, object] = {"name": name, "url": parse_address(url).without_password(), "ok": True, "answer": "ok"}
    try:
        with Target(url=url).open() as queue:
            queue.tubes()
    except typer.Exit:
        result |= {"ok": False, "answer": "there is no queue"}
    except (PenstockError, OSError) as error:
        result |= {"ok": False, "answer": message_of(error)}
    return result
