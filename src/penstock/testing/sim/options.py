"""The options of a simulation: the size of the cluster, the behaviour of its clients, and the faults.

Each seed has a few kinds of faults, so that common ones do not hide rare combinations. A quarter of the seeds has none,
which tests the guarantees that hold only without faults. All options are drawn from the seed, and printed when
the seed fails.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from random import Random

from penstock.testing.sim.schedule import Streams

ALWAYS = "always"
EVERYSEC = "everysec"
NO_JOURNAL = "none"

# The workloads: Disque's commands on `disque` tubes, or tubes of other types, which live on one node.
DISQUE = "disque"
TUBES = "tubes"

# The names of all nemeses.
NEMESES = (
    *("partition", "one_way", "swizzle", "kill", "power_cut", "pause", "clock_jump", "slow_disk", "failing_disk"),
    *("full_disk", "memory", "leave", "join", "wipe", "snapshot", "hang_up", "closed_queue"),
    *("set_aside", "lose"),
)

# Replaces a node by its standby.
REHOME = "rehome"

# The nemeses of the workload `tubes`. The others are about the queues of Disque and about copies of jobs.
TUBE_NEMESES = (*(name for name in NEMESES if name not in ("closed_queue", "set_aside", "lose")), REHOME)

# The nemesis of the feature LATE_TUBES.
LOST_HOME = "lost_home"

# The number of kinds of tubes in tubes.py.
TUBE_KINDS = 7

# The further features of the workload `tubes`, and the share of seeds that use each.
STAGES = "stages"
CLAIMS = "claims"
CROWDED = "crowded"
PIPELINES = "pipelines"
USERS = "users"
LATE_TUBES = "late_tubes"  # Tubes are created while there are faults, and a node can be lost when it has created one.
HALF_CLOSE = "half_close"  # Consumers close their sending side while they wait for a job.
BIG_BODIES = "big_bodies"  # Replies do not fit into one message between nodes.
FEW_GUESTS = "few_guests"  # Nodes limit the forwarded clients until the faults are over.
ONCE = "once"
LOADING = "loading"
FEATURES = (STAGES, CLAIMS, CROWDED, PIPELINES, USERS, LATE_TUBES, HALF_CLOSE, BIG_BODIES, FEW_GUESTS, ONCE, LOADING)
_FEATURE_SHARE = 0.3


@dataclass(frozen=True)
class Options:
    """The options of one simulation."""

    # The cluster
    nodes: int = 3
    node_timeout_ms: int = 1_000
    journal: str = ALWAYS
    sync_us: int = 300  # Average duration of a sync.
    turn_us: int = 100  # How long a node collects input before it processes it.
    drift_ppm: int = 0  # How much faster or slower a clock may run.
    # The network between the nodes
    delay_us: int = 500  # Average one-way delay.
    loss: float = 0.0
    duplication: float = 0.0
    encoded: int = 0  # 1: messages are encoded and decoded, which takes twice the time.
    # The clients
    producers: int = 2
    consumers: int = 2
    queues: int = 1
    jobs: int = 50
    replicate: tuple[int, ...] = (3,)
    retry_s: tuple[int, ...] = (1,)  # 0: at most once.
    ttl_s: tuple[int, ...] = (86_400,)
    delay_s: tuple[int, ...] = (0,)
    body_bytes: tuple[int, ...] = (0,)
    async_share: float = 0.0
    nack_share: float = 0.0
    drop_share: float = 0.0  # The share of jobs that a consumer takes and never finishes.
    elsewhere_share: float = 0.0  # The share of acks that are sent to another node.
    fast_share: float = 0.0  # The share of acks that are FASTACK.
    working_share: float = 0.0  # The share of jobs whose consumer asks for more time.
    # The faults
    chaos_ms: int = 8_000
    nemeses: tuple[str, ...] = ()
    faults_every_ms: int = 2_000
    # The workload, and the options of `tubes`
    workload: str = DISQUE
    tubes: tuple[int, ...] = ()  # The kinds of the tubes: see tubes.py.
    grace_ms: tuple[int, ...] = (0,)  # The grace times of RESP sessions.
    iproto_grace_ms: int = 0  # The grace time of IPROTO sessions: the default of the nodes.
    iproto_share: float = 0.0  # The share of clients that use IPROTO.
    hold_share: float = 0.0  # The share of steps in which a consumer takes more jobs before it finishes one.
    cut_share: float = 0.0  # The share of steps in which a consumer closes its connection, to resume its session.
    features: tuple[str, ...] = ()  # Further clients and behaviour: see FEATURES.

    @property
    def is_calm(self) -> bool:
        """Return whether there are no faults, not even of the network."""
        return not self.nemeses and not self.loss and not self.duplication

    def shown(self) -> str:
        """Return all options on one line."""
        return " ".join(f"{name}={_text(value)}" for name, value in asdict(self).items())

    def changed(self, settings: list[str]) -> Options:
        """Return a copy with changed options. Each of `settings` is NAME=VALUE, as `shown` prints it."""
        changes: dict[str, object] = {}
        kinds = {field.name: getattr(self, field.name) for field in fields(self)}
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals or name not in kinds:
                raise ValueError(f"{setting!r} is no option; available: {', '.join(kinds)}")
            changes[name] = _value(name, kinds[name], text)
        return replace(self, **changes)  # type: ignore[arg-type]


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _value(name: str, like: object, text: str) -> object:
    try:
        if isinstance(like, tuple):
            parts = [part for part in text.split(",") if part]
            return tuple(parts) if name in ("nemeses", "features") else tuple(int(part) for part in parts)
        if isinstance(like, int):
            return int(text)
        return float(text) if isinstance(like, float) else text
    except ValueError:
        raise ValueError(f"{name}={text}: not a value; an example is {_text(like)}") from None


def draw(seed: int) -> Options:
    """Draw the options of a seed."""
    random = Streams(seed).stream("options")
    nodes = random.choice((1, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7))
    calm = random.random() < 0.25
    jobs = random.choice((20, 30, 40, 50, 60, 80, 120)) if random.random() < 0.95 else random.randint(200, 500)
    once = random.random() < 0.35
    options = Options(
        nodes=nodes,
        node_timeout_ms=random.choice((2_000, 3_000, 3_000, 10_000, 10_000)),
        journal=random.choice((ALWAYS, ALWAYS, ALWAYS, EVERYSEC, NO_JOURNAL, NO_JOURNAL)),
        sync_us=random.choice((50, 200, 1_000, 8_000)),
        turn_us=random.choice((20, 100, 1_000)),
        delay_us=random.choice((200, 500, 2_000)) if calm else random.choice((200, 1_000, 5_000, 20_000, 50_000)),
        producers=random.randint(1, 4),
        consumers=random.randint(1, 6),
        queues=random.choice((1, 1, 2, 3, 5)),
        jobs=jobs,
        replicate=_some(random, (1, 2, 3, 3, 4), nodes),
        retry_s=(0,) if once and random.random() < 0.3 else _some(random, (1, 2, 5, 5, 20, *((0, 0) if once else ()))),
        ttl_s=_some(random, (1, 5, 30, 86_400, 86_400, 86_400)),
        delay_s=_some(random, (0, 0, 0, 1, 3)),
        body_bytes=_some(random, (0, 1, 100, 4_000)),
        async_share=random.choice((0.0, 0.0, 0.1, 0.5)),
        nack_share=random.choice((0.0, 0.0, 0.1, 0.3)),
        drop_share=random.choice((0.0, 0.1, 0.3)),
        elsewhere_share=random.choice((0.0, 0.2, 1.0)),
        fast_share=random.choice((0.0, 0.0, 0.2, 1.0)),
        working_share=random.choice((0.0, 0.1)),
        chaos_ms=random.randint(2_000, 12_000),
        faults_every_ms=random.choice((300, 1_000, 3_000)),
        encoded=int(random.random() < 0.04),
    )
    if calm:
        return options
    return replace(
        options,
        drift_ppm=random.choice((0, 0, 1_000, 50_000)),
        loss=random.choice((0.0, 0.0, 0.01, 0.1, 0.3)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.5)),
        nemeses=tuple(name for name in NEMESES if random.random() < 0.2),
    )


def options_of(seed: int, settings: list[str]) -> Options:
    """Return the options of a seed for the workload in `settings`, with these settings applied."""
    options = draw_tubes(seed) if f"workload={TUBES}" in settings else draw(seed)
    options = options.changed(settings)
    if options.workload not in (DISQUE, TUBES):
        raise ValueError(f"workload={options.workload}: not a value; an example is {TUBES}")
    return options


def draw_tubes(seed: int) -> Options:
    """Draw the options of a seed for the workload `tubes`."""
    random = Streams(seed).stream("options of tubes")
    calm = random.random() < 0.25
    options = Options(
        nodes=random.choice((1, 2, 3, 3, 3, 3, 4, 5)),
        node_timeout_ms=random.choice((1_000, 2_000, 3_000)),
        journal=random.choice((ALWAYS, ALWAYS, ALWAYS, ALWAYS, EVERYSEC, NO_JOURNAL)),
        sync_us=random.choice((50, 200, 1_000, 8_000)),
        turn_us=random.choice((20, 100, 1_000)),
        delay_us=random.choice((200, 500, 2_000)) if calm else random.choice((200, 1_000, 5_000, 20_000)),
        producers=random.randint(1, 3),
        consumers=random.randint(1, 5),
        jobs=random.choice((20, 30, 40, 60, 100)),
        body_bytes=_some(random, (0, 1, 100, 4_000)),
        nack_share=random.choice((0.0, 0.1, 0.3)),
        drop_share=random.choice((0.0, 0.1, 0.3)),
        chaos_ms=random.randint(2_000, 10_000),
        faults_every_ms=random.choice((300, 1_000, 3_000)),
        encoded=int(random.random() < 0.2),
        workload=TUBES,
        tubes=tuple(sorted(random.sample(range(TUBE_KINDS), random.randint(1, 4)))),
        grace_ms=_some(random, (0, 0, 500, 2_000, 5_000)),
        iproto_grace_ms=Streams(seed).stream("grace of IPROTO").choice((0, 500, 2_000)),
        iproto_share=random.choice((0.0, 0.3, 0.5, 1.0)),
        hold_share=random.choice((0.0, 0.2, 0.6)),
        cut_share=random.choice((0.0, 0.05, 0.2)),
        # Each feature has a stream of its own, so that a new one does not change the draws of the others.
        features=tuple(name for name in FEATURES if Streams(seed).stream(f"feature {name}").random() < _FEATURE_SHARE),
    )
    if calm:
        return options
    drift_ppm = random.choice((0, 0, 1_000, 50_000))
    loss = random.choice((0.0, 0.0, 0.001, 0.01))
    nemeses = [name for name in TUBE_NEMESES if random.random() < 0.2]
    nemeses += [LOST_HOME] if LATE_TUBES in options.features else []
    return replace(options, drift_ppm=drift_ppm, loss=loss, nemeses=tuple(nemeses))


def _some(random: Random, values: tuple[int, ...], most: int | None = None) -> tuple[int, ...]:
    """Return one to three of the values at random. A value greater than `most` is replaced by `most`."""
    chosen = sorted({random.choice(values) for _ in range(random.choice((1, 1, 2, 3)))})
    return tuple(sorted({min(value, most) for value in chosen})) if most is not None else tuple(chosen)
