"""The judge finds nothing in real histories, and names every forged event."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core import claims
from penstock.core import policy as p
from penstock.core.engine import Engine
from penstock.core.job import VERDICT_BURY, VERDICT_MOVE, VERDICT_NACK, Draft, Verdict
from penstock.core.limits import UNSET
from penstock.core.sessions import Session
from penstock.pipeline.judge.finding import CANNOT_TELL, KEPT
from penstock.pipeline.judge.judge import PROMISES, judge, judge_with_clocks
from tests.spark.real_histories import NOON, TUBES, Histories, Row, add_random, add_simulated, events_frame, of_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000


class Shop:
    """Work on one engine: each method is a command of a session, at the present time."""

    def __init__(self, engine: Engine, commit: Callable[[int], None]) -> None:
        self.engine, self.commit = engine, commit
        self.now = NOON
        self.ann = engine.connect(b"ann").session
        self.ben = engine.connect(b"ben").session

    def act(self, session: Session, command: Callable[[], Any], after_ms: int = 10) -> Any:
        self.now += after_ms
        self.engine.outbox.actor = session
        result = command()
        self.engine.outbox.actor = None
        self.commit(self.now)
        return result

    def put(self, tube: Any, **options: Any) -> Any:
        return self.act(self.ann, lambda: self.engine.put(tube, Draft(b"work", **options), self.now))

    def take(self, tube: Any, after_ms: int = 10) -> Any:
        return self.act(self.ann, lambda: self.engine.take(self.ann, tube, self.now), after_ms)

    def ack(self, job: Any) -> None:
        assert self.act(self.ann, lambda: self.engine.ack(self.ann, job, self.now)) == 0


def a_day(engine: Engine, commit: Callable[[int], None]) -> None:
    """Use tubes with each promise that a forgery breaks."""
    shop = Shop(engine, commit)
    make = {
        "fifo": p.FIFO,
        "timed": dataclasses.replace(p.FIFOTTL, default_ttr_ms=60 * SECOND),
        "keyed": p.UTUBE,
        "once": p.DISQUE,
        "full": dataclasses.replace(p.LIMFIFOTTL, capacity=2),
        "chosen": dataclasses.replace(p.XQUEUE, first_integer=100),
        "claimed": p.FIFOTTL,
        "moved": p.FIFOTTL,
    }
    tubes = {name: engine.create_tube(name.encode(), policy, shop.now) for name, policy in make.items()}
    for _ in range(4):
        shop.put(tubes["fifo"])
    for _ in range(3):
        shop.ack(shop.take(tubes["fifo"]))
    shop.put(tubes["timed"], delay_ms=5 * SECOND, ttl_ms=60 * SECOND)
    job = shop.take(tubes["timed"], 6 * SECOND)
    shop.act(shop.ann, lambda: engine.nack(shop.ann, job, shop.now, b"no"))
    shop.ack(shop.take(tubes["timed"]))
    shop.put(tubes["timed"])
    late = shop.take(tubes["timed"])
    shop.act(shop.ben, lambda: engine.advance(shop.now), 61 * SECOND)
    assert late.holder < 0
    shop.ack(shop.take(tubes["timed"]))
    for _ in range(2):
        shop.put(tubes["keyed"], key=b"a")
    first = shop.take(tubes["keyed"])
    shop.ack(first)
    shop.ack(shop.take(tubes["keyed"]))
    shop.put(tubes["once"], once=True)
    shop.ack(shop.take(tubes["once"]))
    for _ in range(2):
        shop.put(tubes["full"])
    shop.ack(shop.take(tubes["full"]))
    shop.put(tubes["full"])
    shop.put(tubes["chosen"], number=7)
    shop.ack(shop.take(tubes["chosen"]))
    shop.put(tubes["chosen"], number=7)
    shop.ack(shop.take(tubes["chosen"]))
    judge_a_claim(shop, tubes["claimed"], tubes["moved"])


def judge_a_claim(shop: Shop, tube: Any, target: Any) -> None:
    """Claim four jobs, nack, bury and move three of them by verdicts, and ack the claim."""
    for _ in range(4):
        shop.put(tube)
    claim = shop.act(shop.ann, lambda: claims.claim(shop.engine, b"reader", 1, 1, tube, 4, 60 * SECOND, shop.now))
    verdicts = [Verdict(VERDICT_NACK, b"", 0, b""), Verdict(VERDICT_BURY, b"", UNSET, b"")]
    verdicts.append(Verdict(VERDICT_MOVE, b"", UNSET, target.name))
    jobs = claim.jobs[:3]
    shop.act(shop.ann, lambda: claims.judge_jobs(shop.engine, b"reader", 1, 1, jobs, verdicts, shop.now))
    shop.act(shop.ann, lambda: claims.ack_claims(shop.engine, b"reader", 1, 1, shop.now))


def two_lives(engine: Engine, commit: Callable[[int], None]) -> None:
    """Lower the key limit of a tube while jobs are taken. Then drop the tube, and create it with another type."""
    shop = Shop(engine, commit)
    tube = engine.create_tube(b"again", dataclasses.replace(p.UTUBE, key_limit=2), shop.now)
    for _ in range(4):
        shop.put(tube, key=b"a")
    jobs = [shop.take(tube), shop.take(tube)]
    shop.act(shop.ann, lambda: engine.alter(tube, dataclasses.replace(tube.policy, key_limit=1), shop.now))
    assert shop.take(tube) is None
    for job in jobs:
        shop.ack(job)
    shop.ack(shop.take(tube))
    shop.act(shop.ann, lambda: engine.drop(tube, shop.now))
    tube = engine.create_tube(b"again", p.FIFO, shop.now)
    for _ in range(2):
        shop.put(tube)
    jobs = [shop.take(tube), shop.take(tube)]
    for job in jobs:
        shop.ack(job)


DAY = of_engine("", a_day)
LIVES = of_engine("", two_lives)


def nth(rows: list[Row], tube: str, event: str, number: int = 0) -> int:
    """Return the index of an event of a tube."""
    return [at for at, row in enumerate(rows) if row["tube"] == tube and row["event"] == event][number]


def moved_back(rows: list[Row]) -> int:
    at = nth(rows, "keyed", "acked")
    rows[at]["time"] -= timedelta(seconds=30)
    return int(rows[at]["position"])


def early(rows: list[Row]) -> int:
    rows[nth(rows, "timed", "put delayed")]["wake"] += timedelta(seconds=3)
    return int(rows[nth(rows, "timed", "delay passed")]["position"])


def early_ttr(rows: list[Row]) -> int:
    rows[nth(rows, "timed", "taken", 2)]["wake"] += timedelta(seconds=30)
    return int(rows[nth(rows, "timed", "ttr passed")]["position"])


def late_ack(rows: list[Row]) -> int:
    rows[nth(rows, "timed", "taken", 1)]["wake"] -= timedelta(seconds=60)
    return int(rows[nth(rows, "timed", "acked")]["position"])


def by_a_stranger(event: str) -> Callable[[list[Row]], int]:
    def forge(rows: list[Row]) -> int:
        at = nth(rows, "timed", event)
        rows[at]["actor"] += 1
        return int(rows[at]["position"])

    return forge


def two_of_one_key(rows: list[Row]) -> int:
    """Exchange the ack of the first job with the take of the second."""
    ack, take = nth(rows, "keyed", "acked"), nth(rows, "keyed", "taken", 1)
    for name in ("position", "time"):
        rows[ack][name], rows[take][name] = rows[take][name], rows[ack][name]
    rows[nth(rows, "keyed", "acked", 1)]["before_position"] = rows[take]["position"]
    return int(rows[take]["position"])


def twice_at_most_once(rows: list[Row]) -> int:
    """Add a second delivery before the ack."""
    taken, acked = nth(rows, "once", "taken"), nth(rows, "once", "acked")
    last = max(row["position"] for row in rows)
    back = {**rows[taken], "event": "snatched", "before": "taken", "after": "ready", "position": last + 1}
    again = {**rows[taken], "position": last + 2, "before_position": last + 1, "deliveries": 2}
    back["before_position"] = rows[taken]["position"]
    rows[acked].update(position=last + 3, before_position=last + 2, deliveries=2)
    for row in (back, again, rows[acked]):
        row["time"] = max(row["time"] for row in rows)
    rows += [back, again]
    return int(last) + 2


def wrong_order(rows: list[Row]) -> int:
    """Exchange the places of the first two jobs."""
    first, second = (rows[nth(rows, "fifo", "put", number)] for number in (0, 1))
    orders = {first["job"]: second["order"], second["job"]: first["order"]}
    for row in rows:
        row["order"] = orders.get(row["job"], row["order"])
    return int(rows[nth(rows, "fifo", "taken")]["position"])


def overtaken_for_ever(rows: list[Row]) -> int:
    """Let the last job, which is never taken, have the first place."""
    last = rows[nth(rows, "fifo", "put", 3)]
    last["order"] = 0
    return int(rows[nth(rows, "fifo", "taken", 2)]["position"])


def over_capacity(rows: list[Row]) -> int:
    """Let the third put come before the ack."""
    ack, put = nth(rows, "full", "acked"), nth(rows, "full", "put", 2)
    for name in ("position", "time"):
        rows[ack][name], rows[put][name] = rows[put][name], rows[ack][name]
    rows[put]["since"] = rows[put]["created"] = rows[put]["time"]
    return int(rows[put]["position"])


def same_number(rows: list[Row]) -> int:
    first, second = (rows[nth(rows, "fifo", "put", number)] for number in (0, 1))
    for row in rows:
        if row["job"] == second["job"]:
            row["number"] = first["number"]
    return int(second["position"])


def same_chosen_number(rows: list[Row]) -> int:
    """Let the second job with the number 7 arrive before the first one is acked."""
    put, ack = nth(rows, "chosen", "put", 1), nth(rows, "chosen", "acked")
    for name in ("position", "time"):
        rows[ack][name], rows[put][name] = rows[put][name], rows[ack][name]
    rows[put]["since"] = rows[put]["created"] = rows[put]["time"]
    for row in rows:
        if row["job"] == rows[put]["job"]:
            row["created"] = rows[put]["time"]
    rows[nth(rows, "chosen", "taken", 1)]["before_position"] = rows[put]["position"]
    return int(rows[put]["position"])


def after_ttl(rows: list[Row]) -> int:
    taken = rows[nth(rows, "timed", "taken")]
    for row in rows:
        if row["job"] == taken["job"]:
            row["expiry"] = taken["time"]
    return int(taken["position"])


def early_end(rows: list[Row]) -> int:
    at = nth(rows, "timed", "acked", 1)
    rows[at].update(event="expired", before="taken", expiry=rows[at]["time"] + timedelta(seconds=1))
    return int(rows[at]["position"])


def repeated(rows: list[Row]) -> int:
    rows.append(dict(rows[nth(rows, "fifo", "acked")]))
    return int(rows[-1]["position"])


def lawless(rows: list[Row]) -> int:
    at = nth(rows, "timed", "delay passed")
    rows[at]["event"] = "kicked"
    return int(rows[at]["position"])


def removed(rows: list[Row]) -> int:
    del rows[nth(rows, "fifo", "put", 1)]
    return int(rows[nth(rows, "fifo", "taken", 1)]["position"])


def removed_take(rows: list[Row]) -> int:
    del rows[nth(rows, "fifo", "taken", 1)]
    return int(rows[nth(rows, "fifo", "acked", 1)]["position"])


def other_key(rows: list[Row]) -> int:
    at = nth(rows, "keyed", "taken", 1)
    rows[at]["key"] = b"b"
    return int(rows[at]["position"])


def older(rows: list[Row]) -> int:
    at = nth(rows, "fifo", "acked", 1)
    rows[at]["created"] -= timedelta(seconds=1)
    return int(rows[at]["position"])


def by_a_stranger_in_version_1(rows: list[Row]) -> int:
    for row in rows:
        row.update(since=None, actor=None)
    at = nth(rows, "fifo", "acked")
    rows[at]["session"] += 1
    return int(rows[at]["position"])


def without_a_verdict(event: str) -> Callable[[list[Row]], int]:
    """Turn the ack of a claimed job, on which there was no verdict, into another event."""

    def forge(rows: list[Row]) -> int:
        at = nth(rows, "claimed", "acked")
        rows[at] |= {"event": event, "after": {"nacked": "ready", "buried": "buried"}[event]}
        return int(rows[at]["position"])

    return forge


# By name: the promise that is broken, and the forgery, which returns the position of the event that breaks it.
FORGERIES: dict[str, tuple[str, Callable[[list[Row]], int]]] = {
    "a time moved back": ("time", moved_back),
    "a delay that ends early": ("early", early),
    "a ttr that ends early": ("early", early_ttr),
    "an ack after the ttr": ("late", late_ack),
    "an ack by a stranger": ("strangers", by_a_stranger("acked")),
    "a nack by a stranger": ("strangers", by_a_stranger("nacked")),
    "a nack of a claimed job without a verdict": ("strangers", without_a_verdict("nacked")),
    "a bury of a claimed job without a verdict": ("strangers", without_a_verdict("buried")),
    "an ack by a stranger in version 1": ("strangers", by_a_stranger_in_version_1),
    "two of one key": ("keys", two_of_one_key),
    "at most once twice": ("once", twice_at_most_once),
    "a wrong order": ("order", wrong_order),
    "a job that is overtaken for ever": ("order", overtaken_for_ever),
    "a put over the capacity": ("capacity", over_capacity),
    "a number used twice": ("unique", same_number),
    "a chosen number of two jobs": ("unique", same_chosen_number),
    "a delivery after the ttl": ("ttl", after_ttl),
    "an early end of the ttl": ("ttl", early_end),
    "a repeated row": ("twice", repeated),
    "an illegal transition": ("lawless", lawless),
    "a removed put": ("lost", removed),
    "a removed take": ("lost", removed_take),
    "another key": ("changed", other_key),
    "another time of creation": ("changed", older),
}


LIMITED = "a lower key limit"

# A history of which the first events are missing. The first event that is left is forged.
BESIDE_A_GAP = "beside a gap"


@pytest.fixture(scope="module")
def forged(spark: SparkSession) -> tuple[dict[str, dict[str, list[dict[str, Any]]]], dict[str, Row]]:
    """The findings about all forgeries by node and promise, and the events to find. Each forgery has its own node."""
    rows: list[Row] = []
    tubes: list[tuple[Any, ...]] = []
    wanted: dict[str, Row] = {}
    for name, (_, forge) in FORGERIES.items():
        mine = [{**row, "node": name} for row in DAY.events]
        position = forge(mine)
        wanted[name] = next(row for row in mine if row["position"] == position)
        rows += mine
        tubes += [(name, *row[1:]) for row in DAY.tubes]
    # With the key limit of the second policy from the start, the second take of this tube is wrong.
    limit = next(row[5] for row in LIVES.tubes if row[4] == "changed")
    rows += [{**row, "node": LIMITED} for row in LIVES.events]
    tubes += [(LIMITED, *row[1:5], limit if row[4] == "made" and "utube" in row[5] else row[5]) for row in LIVES.tubes]
    beside = [{**row, "node": BESIDE_A_GAP} for row in DAY.events]
    gap_end = lawless(beside)
    rows += [row for row in beside if row["position"] >= gap_end]
    tubes += [(BESIDE_A_GAP, *row[1:]) for row in DAY.tubes]
    histories = Histories()
    histories.events, histories.tubes = rows, tubes
    histories.since = {**dict.fromkeys([*FORGERIES, LIMITED], 1), BESIDE_A_GAP: gap_end}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in histories.since}
    for finding in judge(spark, *histories.frames(spark)):
        for example in finding.examples:
            found[example["node"]].setdefault(finding.name, []).append(example)
    return found, wanted


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named(forged: Any, name: str) -> None:
    found, wanted = forged
    promise = FORGERIES[name][0]
    assert promise in found[name], f"found only {found[name]}"
    examples = {example["position"]: example for example in found[name][promise]}
    example = examples[wanted[name]["position"]]
    assert example.pop("what")
    assert example == {field: wanted[name][field] for field in ("node", "tube", "job", "position", "time")}


def test_a_tube_is_judged_by_the_policy_of_its_own_life_and_position(forged: Any) -> None:
    """With its true policies, this history is among those without a finding."""
    found, _ = forged
    second = [row["position"] for row in LIVES.events if row["event"] == "taken"][1]
    assert {promise: [example["position"] for example in examples] for promise, examples in found[LIMITED].items()} == {
        "keys": [second]
    }


def test_the_first_event_after_a_gap_is_judged_and_the_gap_itself_breaks_no_promise(forged: Any) -> None:
    found, wanted = forged
    positions = {promise: [each["position"] for each in examples] for promise, examples in found[BESIDE_A_GAP].items()}
    assert positions == {"lawless": [wanted["an illegal transition"]["position"]]}


@pytest.fixture(scope="module")
def real() -> Histories:
    """Histories of engines with tubes of all types, and of simulated clusters with faults."""
    histories = Histories()
    for node, history in (("day", DAY), ("lives", LIVES)):
        histories.events += [{**row, "node": node} for row in history.events]
        histories.tubes += [(node, *row[1:]) for row in history.tubes]
        histories.since[node] = 1
    for seed in range(1, 5):
        add_random(histories, seed, 300)
    add_simulated(histories, 1, ["workload=tubes", "journal=always", "nodes=3"])
    add_simulated(histories, 2, ["workload=disque", "journal=always", "nodes=3"])
    return histories


def test_an_untouched_history_has_no_finding(spark: SparkSession, real: Histories) -> None:
    claimed = {row["event"] for row in real.events if row["node"] == "day" and row["tube"] == "claimed"}
    assert claimed >= {"judged", "nacked", "buried", "moved out", "acked"}
    result = judge_with_clocks(spark, *real.frames(spark))
    assert {finding.name: finding.examples for finding in result.findings if finding.broken} == {}
    assert [finding.name for finding in result.findings] == list(PROMISES)
    assert {finding.verdict for finding in result.findings} == {KEPT}
    assert result.events == len(real.events)
    assert {clock.node for clock in result.clocks} == {row["node"] for row in real.events}
    # The simulated nodes exchange jobs, and their clocks are at most some seconds apart.
    ahead = [clock.ahead_ms for clock in result.clocks if clock.ahead_ms is not None]
    assert ahead and all(abs(ms) < 10_000 for ms in ahead)


def test_the_events_of_a_turn_are_judged_without_the_earlier_ones(spark: SparkSession, real: Histories) -> None:
    turn = Histories()
    for node in real.since:
        positions = sorted(row["position"] for row in real.events if row["node"] == node)
        part = real.after(node, positions[len(positions) // 2] if positions else 1)
        turn.events += part.events
        turn.tubes += part.tubes
        turn.since |= part.since
    found = judge(spark, *turn.frames(spark))
    assert {finding.name: finding.examples for finding in found if finding.broken} == {}


def test_what_cannot_be_judged_is_said(spark: SparkSession) -> None:
    history = of_engine("n", a_day)
    tubes = [(*row[:5], None) for row in history.tubes]
    # Version 1 of the log has neither since nor actor.
    rows = [{**row, "since": None, "actor": None} for row in history.events]
    verdicts = {
        finding.name: finding
        for finding in judge(spark, events_frame(spark, rows), spark.createDataFrame(tubes, TUBES), {"n": 1})
    }
    assert not any(finding.broken for finding in verdicts.values())
    assert verdicts["lost"].verdict == KEPT
    for name in ("order", "early", "keys", "capacity", "strangers"):
        assert verdicts[name].verdict == CANNOT_TELL
        assert "the policy of 8 tubes is not known" in verdicts[name].unjudged
    assert "version 1 of the log" in verdicts["strangers"].unjudged


def test_without_nodes_there_is_no_verdict(spark: SparkSession) -> None:
    events, tubes, _ = DAY.frames(spark)
    assert {finding.verdict for finding in judge(spark, events, tubes, {})} == {CANNOT_TELL}
