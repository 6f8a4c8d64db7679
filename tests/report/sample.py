"""A source with a day of made-up traffic in all tables: busy and quiet tubes, a backlog, failures, gaps."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from penstock.report.source import AuditResult, Finding, NodeLag

from .memory_source import DAY, MemorySource, Rows, minute

NODES = ("a1b2c3d4" * 5, "0f1e2d3c" * 5)


def bucket_of(ms: int) -> int:
    """Return the bucket of a duration, as the pipeline computes it."""
    return 0 if ms <= 0 else math.ceil(math.log(ms) / math.log(1.02)) + 1


def sample(
    tubes: Iterable[str] = ("emails", "images", "invoices"), minutes: int = 400, seed: int = 7, broken: int = 0
) -> MemorySource:
    """Return a source with rows for each of the tubes and minutes. No tube has events from minute 170 to 190."""
    chance = random.Random(seed)
    gold: dict[str, Rows] = {
        name: []
        for name in ("rates", "redeliveries", "transitions", "failures", "fairness", "workers", "durations", "flows")
    }
    for number, tube in enumerate(tubes):
        ready = taken = 0
        for at in range(minutes):
            if 170 <= at < 190 or chance.random() < 0.02 * number:
                continue
            load = 1 + math.sin(at / 40 + number) + 0.3 * chance.random() + 6 * (chance.random() < 0.01)
            puts = round(200 * load / (number + 1) ** 1.5) + chance.randrange(5)
            takes = min(ready + puts, round(330 / (number + 1) ** 1.5))
            fails = chance.randrange(takes // 20 + 1)
            place = {"tube": tube, "minute": minute(at)}
            gold["rates"].append({**place, "puts": puts, "takes": takes, "acks": takes - fails, "fails": fails})
            gold["redeliveries"].append({**place, "takes": takes, "redeliveries": fails, "nacked": fails})
            busy = round(8 / (number + 1) * min(1, takes / 300 * (number + 1) ** 1.5)) - taken
            taken += busy
            flow = {"ready": puts - takes, "ready_peak": puts, "taken": busy, "taken_peak": max(busy, 0) + at % 3}
            gold["flows"].append(
                {**place, "node": NODES[0], "position": at * 1000, **flow, "buried": int(at % (40 + 9 * number) == 0)}
            )
            wait = 8 + 1000 * ready * 60 / 330 * (number + 1) ** 1.5
            for kind, middle in (("wait", wait), ("run", 120.0 * (number + 1))):
                for _ in range(18):
                    ms = round(middle * math.exp(chance.gauss(0, 0.7)))
                    gold["durations"].append({**place, "kind": kind, "bucket": bucket_of(ms), "count": takes // 18 + 1})
            ready += puts - takes
        count = sum(row["puts"] for row in gold["rates"] if row["tube"] == tube)
        for reason, share in (
            ("timed out", 0.02),
            ("404", 0.01),
            ("failed 3 times, at last: 404", 0.002),
            ("connection reset by 10.0.0.7", 0.004),
        ):
            dead = round(count * 0.002) if reason.startswith("failed") else 0
            row = {"tube": tube, "reason": reason, "count": round(count * share), "dead_letters": dead}
            gold["failures"].append({**row, "example_max": chance.randrange(1, count)})
        for key in range(30):
            jobs = round(count / (key + 2) ** 1.3)
            waits = {"wait_ms": jobs * (900 + 300 * (key == 0)), "wait_ms_max": 42_000 + 1000 * key}
            gold["fairness"].append(
                {"tube": tube, "key": f"customer-{key:02d}", "jobs": jobs, "deliveries": jobs, "acks": jobs, **waits}
            )
        for before, after, share in (
            *(("new", "ready", 0.9), ("new", "delayed", 0.1), ("delayed", "ready", 0.12), ("ready", "taken", 1.02)),
            *(
                ("taken", "done", 0.97),
                ("taken", "delayed", 0.02),
                ("taken", "ready", 0.01),
                ("taken", "buried", 0.003),
            ),
        ):
            gold["transitions"].append({"tube": tube, "before": before, "after": after, "count": round(count * share)})
    sessions: Rows = []
    for session in range(1, 13):
        done = {
            "taken": 9_000 - 600 * session,
            "acked": 8_800 - 600 * session,
            "failed": 200,
            "busy_ms": 3_600_000 * session,
        }
        node = NODES[session % 2]
        gold["workers"].append({"node": node, "session": session, **done})
        if session < 11:
            sessions.append({"node": node, "session": session, "name": f"worker-{session % 5}", "user": "mailer"})
    promises = ("Every job is delivered or ends.", "An acked job is not delivered again.", "Jobs keep their order.")
    findings = [Finding(promise, "kept") for promise in promises]
    findings.append(Finding("A tube stays within its capacity.", "not judged", note="no tube has a capacity"))
    if broken:
        findings.insert(0, Finding("Only the holder finishes a job.", "broken", broken))
    newest = minute(minutes - 1)
    return MemorySource(
        gold,
        sessions=sessions,
        verdict=AuditResult(findings, DAY.replace(hour=23), 41),
        lag=[NodeLag(NODES[0], 1_204 if broken else 0, newest), NodeLag(NODES[1], 0, newest)],
    )
