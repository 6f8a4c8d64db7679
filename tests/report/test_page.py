"""The page is small, allows no code and no other files, and shows names only as text."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from html.parser import HTMLParser

import pytest

from penstock.report.build import build_report
from penstock.report.context import STEPS_MAX
from penstock.report.page import page
from penstock.report.source import AuditResult, Finding, NodeLag
from penstock.report.targets import parse_target

from .memory_source import DAY, NOW, MemorySource, minute
from .sample import NODES, bucket_of, sample

PAGE_BYTES_MAX = 300_000
TARGETS = [parse_target("p95=2m"), parse_target("p99.9=1h")]
HOSTILE = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>\"`<b style='color:red'>"


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def rendered(source: MemorySource) -> str:
    return page(build_report(source, NOW, targets=TARGETS), "The lake is `x`.")


def hostile() -> MemorySource:
    """Return a source in which every name is hostile."""
    source = sample([HOSTILE, "emails"])
    verdict = AuditResult([Finding(HOSTILE, "broken", 3, HOSTILE)], DAY, 1)
    return MemorySource(
        {
            **{name: source.gold(name).to_pylist() for name in ("rates", "durations", "flows", "redeliveries")},
            "failures": [{"tube": HOSTILE, "reason": HOSTILE, "count": 1, "example_max": 7}],
            "fairness": [{"tube": HOSTILE, "key": HOSTILE, "jobs": 1}],
            "workers": [{"node": HOSTILE, "session": 1, "taken": 1}],
            "transitions": [{"tube": HOSTILE, "before": HOSTILE, "after": HOSTILE, "count": 1}],
        },
        sessions=[{"node": HOSTILE, "session": 1, "name": HOSTILE, "user": HOSTILE}],
        verdict=verdict,
        lag=[NodeLag(HOSTILE, 1, DAY)],
    )


def worst_case(minutes: int) -> MemorySource:
    """Return a source with six tubes and some minutes of noise in every chart, and full tables with long names."""
    chance = random.Random(3)
    tubes = [f"tube {number} {'x' * 300}" for number in range(6)]
    gold: dict[str, list[dict[str, object]]] = {name: [] for name in ("rates", "durations", "flows", "redeliveries")}
    for tube in tubes:
        for at in range(minutes):
            place = {"tube": tube, "minute": minute(at)}
            counts = {name: chance.randrange(1000) for name in ("puts", "takes", "acks", "fails")}
            gold["rates"].append({**place, **counts})
            gold["redeliveries"].append({**place, "takes": 1000, "redeliveries": chance.randrange(1000)})
            flows = {name: chance.randrange(-500, 501) for name in ("ready", "taken", "buried")}
            peaks = {"ready_peak": chance.randrange(600), "taken_peak": chance.randrange(600)}
            gold["flows"].append({**place, "node": "n", "position": at, **flows, **peaks})
            for kind in ("wait", "run"):
                for _ in range(8):
                    bucket = bucket_of(round(10 ** chance.uniform(0, 7)))
                    gold["durations"].append(
                        {**place, "kind": kind, "bucket": bucket, "count": chance.randrange(1, 99)}
                    )
    names = [f"{number} {'y' * 300}" for number in range(40)]
    return MemorySource(
        {
            **gold,
            "failures": [
                {"tube": tubes[0], "reason": name, "count": 9, "dead_letters": 9, "example_max": 123_456}
                for name in names
            ],
            "fairness": [{"tube": tubes[0], "key": name, "jobs": 9, "deliveries": 9, "wait_ms": 9} for name in names],
            "workers": [{"node": NODES[0], "session": number, "taken": 9} for number in range(40)],
            "transitions": [
                {"tube": tube, "before": before, "after": after, "count": 9}
                for tube in tubes
                for before in ("ready", "taken", "delayed", "buried", "done", "elsewhere")
                for after in ("ready", "taken", "delayed", "buried", "done", "elsewhere")
            ],
        },
        sessions=[{"node": NODES[0], "session": number, "name": name} for number, name in enumerate(names)],
        verdict=AuditResult([Finding(name, "broken", 3, name) for name in names[:20]], DAY, 1),
        lag=[NodeLag(NODES[0], 1, DAY)],
    )


@pytest.mark.parametrize("minutes", [STEPS_MAX, 400])
def test_the_page_is_below_300_kb_with_six_tubes_of_noise_in_every_chart(minutes: int) -> None:
    text = rendered(worst_case(minutes))
    assert text.count('class="s5"') >= 14  # Every chart over time has the sixth tube.
    assert 'class="q6"' in text
    assert len(text.encode()) < PAGE_BYTES_MAX


def test_a_page_of_many_tubes_and_days_is_not_larger() -> None:
    busy = sample([f"tube {number}" for number in range(40)], minutes=60)
    assert len(rendered(busy).encode()) < PAGE_BYTES_MAX


def test_the_policy_allows_only_the_style_sheet_of_the_page() -> None:
    text = rendered(sample())
    (policy,) = (each["content"] for tag, each in Elements(text).found if tag == "meta" and "http-equiv" in each)
    assert policy is not None
    styles = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert len(styles) == 1
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_the_page_has_no_scripts_no_style_attributes_and_no_addresses() -> None:
    for source in (sample(), hostile()):
        for tag, attributes in Elements(rendered(source)).found:
            assert tag not in {"script", "img", "link", "iframe", "object", "use", "image", "b style"}
            assert not {name for name in attributes if name.startswith("on")} and "style" not in attributes
            assert "src" not in attributes and (attributes.get("href") or "#").startswith("#")


def test_hostile_names_are_text() -> None:
    text = rendered(hostile())
    assert "<script>" not in text and "<img" not in text
    assert "&lt;/script&gt;&lt;script&gt;" in text


def test_ids_are_unique_and_every_chart_is_labelled() -> None:
    found = Elements(rendered(sample())).found
    ids = [each["id"] for _, each in found if "id" in each]
    assert len(ids) == len(set(ids))
    charts = [each for tag, each in found if tag == "svg" and each.get("role") == "img"]
    assert len(charts) >= 20
    assert all(set((each["aria-labelledby"] or "").split()) <= set(ids) for each in charts)


def test_the_verdict_and_the_lag_are_at_the_top() -> None:
    good, bad = rendered(sample()), rendered(sample(broken=2))
    for text, verdict, lag in (
        (good, "✓ 3 promises kept, 1 not judged", "✓ The lake has all events"),
        (bad, "✗ 1 promise broken", "! 1,204 events are not in the lake yet"),
    ):
        assert 0 < text.index(verdict) < text.index(lag) < text.index('class="totals"') < text.index("<section")
    # What is broken is not folded.
    assert "<details open>" in bad and "<details open>" not in good
    unknown = rendered(MemorySource())
    assert "? Not audited" in unknown and "? The lag is not known" in unknown
