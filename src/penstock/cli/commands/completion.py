"""`penstock completion`: a script for shell completion."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

# The supported shells.
Shell = StrEnum("Shell", "BASH ZSH FISH")


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print a script that completes commands, options and names with the Tab key.

    bash: add `source <(penstock completion bash)` to ~/.bashrc. zsh: add `source <(penstock completion zsh)` to
    ~/.zshrc. fish: add `penstock completion fish | source` to ~/.config/fish/config.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="penstock", complete_var="_PENSTOCK_COMPLETE", shell=shell.value))
