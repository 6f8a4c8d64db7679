"""The runner: takes samples of a family's trials in turns, so that load of the machine affects all of them equally."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from bench.clock import freeze, host_gc, server_gc
from bench.rows import Reference, Row, Spec
from bench.trial import Sample, Trial

Tell = Callable[[str], None]


def chosen(families: Iterable[Sequence[Trial]], names: Sequence[str]) -> list[list[Trial]]:
    """Return the trials of the named rows or families and of their bases, or all trials if nothing is named."""
    return [_with_bases(family, names) if names else list(family) for family in families]


def unknown(families: Iterable[Sequence[Trial]], names: Sequence[str]) -> list[str]:
    """Return the names that match no row or family."""
    rows = [spec for family in families for trial in family for spec in trial.rows]
    return [name for name in names if not any(_named(spec, [name]) for spec in rows)]


def run(family: Sequence[Trial], rounds: int, tell: Tell) -> list[Row]:
    """Measure the rows of one family. `rounds` is the number of samples of trials that do not set it."""
    runs = [_Run(trial, trial.rounds or rounds) for trial in family]
    with server_gc():
        for each in runs:
            tell(f"{each.name}: setting up")
            each.prepare()
        for number in range(max((each.rounds for each in runs), default=0)):
            for each in runs:
                if number < each.rounds:
                    tell(f"{each.name}: sample {number + 1} of {each.rounds}")
                    each.sample()
    return list(_rows(runs))


@dataclass
class _Run:
    """A running trial."""

    trial: Trial
    rounds: int
    readings: list[Sequence[float]] = field(default_factory=list)
    error: str = ""
    _sample: Sample | None = None

    @property
    def name(self) -> str:
        return self.trial.rows[0].name

    def prepare(self) -> None:
        # A failing row must not stop the others. It is reported with its error.
        try:
            self._sample = self.trial.prepare()
        except Exception as failure:
            self.error = f"{type(failure).__name__}: {failure}"

    def sample(self) -> None:
        if self._sample is None:
            return
        try:
            freeze()
            with host_gc() if self.trial.host_gc else nullcontext():
                self.readings.append(self._sample())
        except Exception as failure:
            self.error = f"{type(failure).__name__}: {failure}"
            self._sample = None


def _rows(runs: list[_Run]) -> Iterator[Row]:
    samples: dict[str, list[float]] = {}
    for each in runs:
        for i, spec in enumerate(each.trial.rows):
            samples[spec.name] = [] if each.error else [reading[i] for reading in each.readings]
    units = {spec.name: spec.unit for each in runs for spec in each.trial.rows}
    for each in runs:
        for spec in each.trial.rows:
            base_value: float | None = None
            if isinstance(spec.base, Reference):
                base_value = spec.base.value
            elif spec.base is not None and samples.get(spec.base):
                base_value = units[spec.base].best(samples[spec.base])
            yield Row(spec, samples[spec.name], base_value, each.error)


def _with_bases(family: Sequence[Trial], names: Sequence[str]) -> list[Trial]:
    wanted = {spec.name for trial in family for spec in trial.rows if _named(spec, names)}
    bases = {spec.base for trial in family for spec in trial.rows if spec.name in wanted}
    return [trial for trial in family if any(spec.name in wanted | bases for spec in trial.rows)]


def _named(spec: Spec, names: Sequence[str]) -> bool:
    return any(spec.name == name or spec.name.startswith(f"{name}/") for name in names)
