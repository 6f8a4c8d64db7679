"""`penstock sim`: deterministic simulation of clusters with failures, each run from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import ERROR, USAGE, fail
from penstock.cli.progress import count_bar

if TYPE_CHECKING:
    from penstock.testing.sim import Report


def sim(
    seed: Annotated[int, typer.Option("--seed", min=0, help="First seed.")] = 1,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of consecutive seeds to run.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Set an option, instead of drawing it from the seed. Repeatable."
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Number of processes. 0 means one per core.")] = 1,
) -> None:
    """Simulate clusters: real nodes on a simulated network, clock and disk, with random failures.

    Each run is checked against the answers that clients got and the jobs that nodes hold. A failing seed is printed
    with its options and the command that replays it. The same seed always gives the same run.

    The clients use Disque's commands. With --set workload=tubes they use native commands and IPROTO, and tubes of
    other types. Each of these tubes lives on one node, and clients use it through all nodes.
    """
    from penstock.testing.sim.options import options_of
    from penstock.testing.sim.swarm import EXPECTED_AFTER, run_seeds

    given = settings or []
    try:
        options = options_of(seed, given)
    except ValueError as error:
        fail(str(error), USAGE)

    def tell(report: Report) -> None:
        if not report.passed:
            # typer.echo would bypass the progress bar.
            print(report.shown(given))
        elif seeds == 1:
            typer.echo(f"seed {seed} passed; options: {options.shown()}\ndigest: {report.digest}")
        progress(1 + report.seed - seed, seeds)

    with count_bar("simulating") as progress:
        tally = run_seeds(seed, seeds, given, workers, tell)
    typer.echo("\n".join(tally.shown()))
    if tally.failed:
        fail(f"{len(tally.failed):,} of {tally.seeds:,} seeds failed", ERROR)
    # With other options than those of the seeds, some events cannot occur.
    is_drawn = all(setting.startswith("workload=") for setting in given)
    missing = tally.missing() if is_drawn and tally.seeds >= EXPECTED_AFTER else []
    if missing:
        fail(f"expected events did not occur: {', '.join(missing)}", ERROR)
