"""`penstock completion`: what makes the Tab key of a shell know the commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print a script that lets the Tab key complete commands, options and names.

    bash: `source <(penstock completion bash)` in ~/.bashrc. zsh: the same with zsh in ~/.zshrc. fish: `penstock
    completion fish | source` in ~/.config/fish/config.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="penstock", complete_var="_PENSTOCK_COMPLETE", shell=shell.value))
