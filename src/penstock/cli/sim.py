"""`penstock sim`: simulated clusters, each from a seed, with everything that can go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import ERROR, USAGE, fail
from penstock.cli.progress import count_bar

if TYPE_CHECKING:
    from penstock.testing.sim import Report


def sim(
    seed: Annotated[int, typer.Option("--seed", min=0, help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="So many, one after the other.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Let an option be this, instead of drawn from the seed."),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="So many processes at a time; 0 for one on each core.")
    ] = 1,
) -> None:
    """Simulate clusters: real nodes on a network, clocks and disks that fail as the seed decides.

    Each run is judged by what clients saw and nodes hold. A seed that fails is printed with all its options and the
    command that replays it; the same seed always does the same.
    """
    from penstock.testing.sim.options import draw
    from penstock.testing.sim.swarm import run_seeds

    given = settings or []
    try:
        options = draw(seed).changed(given)
    except ValueError as error:
        fail(str(error), USAGE)

    def tell(report: Report) -> None:
        if not report.passed:
            # Not by typer, which goes round a bar.
            print(report.shown(given))
        elif seeds == 1:
            typer.echo(f"seed {seed} passed; options: {options.shown()}\ndigest: {report.digest}")
        progress(1 + report.seed - seed, seeds)

    with count_bar("simulating") as progress:
        tally = run_seeds(seed, seeds, given, workers, tell)
    typer.echo("\n".join(tally.shown()))
    if tally.failed:
        fail(f"{len(tally.failed):,} of {tally.seeds:,} seeds failed", ERROR)
