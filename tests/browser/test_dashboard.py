"""The dashboard in a real browser: every page with and without data, actions, live updates, and hostile names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import wait_for

from .dashboard_site import HOSTILE, Site, opened

PAGES = ["/", "/tubes", "/jobs", "/buried", "/consumers", "/cluster", "/journal", "/settings"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A dashboard of a node with jobs in every state."""
    found = Site(tmp_path_factory.mktemp("dashboard"), "--environment", "production")
    with found.queue() as queue:
        emails = queue.tube("emails", retry="1x then bury")
        emails.put_many([{"to": f"user{number}@example.org", "id": 12345678901234567890} for number in range(30)])
        emails.put({"to": "late@example.org"}, delay=3600)
        for reason in ("timed out", "timed out", "404"):
            job = emails.take()
            assert job is not None
            job.bury(reason)
        queue.tube("keyed", "utube").put_many(["a", "b"], key="ann")
        queue.tube(HOSTILE).put(HOSTILE, headers={"trace": HOSTILE})
    yield found
    found.stop()


@pytest.fixture(scope="module")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("empty"))
    yield found
    found.stop()


def shows(page: Any, text: str) -> None:
    page.get_by_text(text).filter(visible=True).first.wait_for()


# ---- Pages -----------------------------------------------------------------------------------------------------------


def test_every_page_shows_its_data(browser: Any, site: Site) -> None:
    expected = {
        "/": "emails: 3 jobs are buried",
        "/tubes": "emails",
        "/jobs": "user0@example.org",
        "/buried": "timed out",
        "/consumers": "penstock-api",
        "/cluster": "(this dashboard's)",
        "/journal": "ready → taken",
        "/settings": "journal",
    }
    with opened(browser, site.url) as page:
        for path, text in expected.items():
            page.goto(site.url + path)
            shows(page, text)
            page.locator("#live[data-state=live]").wait_for(state="attached" if path != "/jobs" else "hidden")
            assert page.locator("h1").count() == 1


def test_every_page_of_an_empty_queue_shows_the_command_that_fills_it(browser: Any, empty_site: Site) -> None:
    with opened(browser, empty_site.url) as page:
        for path in ("/", "/tubes", "/jobs", "/buried", "/cluster"):
            page.goto(empty_site.url + path)
            page.locator(".command code", has_text="penstock ").first.wait_for()


def test_a_tube_shows_its_numbers_keys_jobs_and_policy(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/tubes/keyed") as page:
        shows(page, "ann")
        assert page.title() == "keyed · Penstock"
        assert page.locator("a.tile").first.locator(".value").inner_text() == "2"
        shows(page, "utube")


def test_a_job_shows_its_timeline_body_and_details(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/jobs?tube=emails&state=buried") as page:
        page.locator("tbody a").first.click()
        shows(page, "taken by")
        shows(page, "buried because")
        # All digits of a number are shown, although a number of JavaScript has 16.
        assert '"id": 12345678901234567890' in page.locator("pre.body").inner_text()
        page.get_by_role("button", name="Hex").click()
        assert page.locator("pre.body").inner_text().startswith("000000  7b 22 74 6f")
        with site.queue() as queue:
            queue.tube("copied", "disque").put("x")
        page.goto(f"{site.url}/jobs?tube=copied")
        page.locator("tbody a").first.click()
        shows(page, "Copies")


def test_a_search_is_in_the_address_and_says_how_far_it_looked(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/jobs") as page:
        page.get_by_label("Condition").fill('body.to == "user7@example.org"')
        page.get_by_role("button", name="Search").click()
        shows(page, "1 job found among")
        assert "where=body.to" in page.url
        page.reload()
        shows(page, "1 job found among")
        page.get_by_label("Condition").fill("body.to =")
        page.get_by_role("button", name="Search").click()
        page.locator("[role=alert]", has_text="character").wait_for()


def test_names_are_text_on_every_page(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/tubes") as page:
        page.get_by_role("link", name="<img src=x").click()
        page.locator("h1", has_text="<img src=x").wait_for()
        assert "<img src=x" in page.title() and "\u202e" not in page.title()
        page.get_by_role("button", name="Truncate").click()
        page.locator("dialog h2", has_text="<img src=x").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.locator("tbody a").first.click()
        page.locator(".timeline", has_text="<img src=x").wait_for()
        for path in ("/jobs", "/journal"):
            page.goto(site.url + path)
            shows(page, "<img src=x")
        assert page.locator("main img").count() == 0


# ---- Actions ---------------------------------------------------------------------------------------------------------


def test_a_job_is_put_killed_off_and_its_events_name_the_dashboard(browser: Any, site: Site) -> None:
    with site.queue() as queue, opened(browser, f"{site.url}/tubes/emails") as page:
        page.get_by_role("button", name="Put a job").click()
        page.get_by_label("Body", exact=True).fill('{"to": "dash@example.org"}')
        page.get_by_role("button", name="Put", exact=True).click()
        page.locator(".toast", has_text="Put into emails").wait_for()
        (job,) = queue.scan(where='body.to == "dash@example.org"')[0]
        page.goto(f"{site.url}/jobs/{job.id.replace('+', '-').replace('/', '_')}")
        page.get_by_role("button", name="Bury").click()
        page.get_by_label("Reason").fill("by hand")
        page.locator("dialog").get_by_role("button", name="Bury").click()
        page.locator(".pill.buried").first.wait_for()
        page.get_by_role("button", name="Delete").click()
        page.locator("dialog", has_text="Delete: job").get_by_role("button", name="Delete the job").click()
        page.wait_for_url("**/jobs")
        events = wait_for(lambda: len(found := queue.history(job.id)) == 3 and found)
        assert [event.event for event in events] == ["put", "buried", "deleted"]
        assert {event.actor_name for event in events} == {"penstock-api"}


def test_a_redrive_shows_its_plan_first(browser: Any, site: Site) -> None:
    with site.queue() as queue, opened(browser, f"{site.url}/buried?tube=emails") as page:
        row = page.locator("tr", has_text="404")
        row.get_by_role("button", name="Redrive").click()
        page.locator(".plan", has_text=re.compile("^1 job would return to emails")).wait_for()
        assert queue.find_tube("emails").stats()["buried"] == 3
        page.locator("dialog").get_by_role("button", name="Redrive").click()
        page.locator(".toast", has_text="1 job of emails redriven").wait_for()
        assert queue.find_tube("emails").stats()["buried"] == 2
        row.wait_for(state="detached")


def test_a_confirmation_names_the_tube_and_the_number_and_needs_the_name(browser: Any, site: Site) -> None:
    with site.queue() as queue:
        queue.tube("doomed").put_many(["a", "b", "c"])
        with opened(browser, f"{site.url}/tubes/doomed") as page:
            page.get_by_role("button", name="Drop", exact=True).click()
            dialog = page.locator("dialog")
            assert "3 jobs" in dialog.inner_text() and "doomed" in dialog.inner_text()
            # A dialog that was open for several ticks still works.
            page.locator("#live[data-state=live]").wait_for()
            dialog.get_by_label("Type doomed").fill("wrong")
            dialog.get_by_role("button", name="Drop the tube").click()
            dialog.locator("[role=alert]", has_text="not the name").wait_for()
            dialog.get_by_label("Type doomed").fill("doomed")
            dialog.get_by_role("button", name="Drop the tube").click()
            page.wait_for_url("**/tubes")
        assert "doomed" not in queue.tubes()


def test_a_bulk_action_shows_its_plan_first(browser: Any, site: Site) -> None:
    with site.queue() as queue:
        tube = queue.tube("bulk")
        tube.put_many([{"n": number} for number in range(5)])
        with opened(browser, f"{site.url}/jobs?tube=bulk&where=body.n+%3C+3") as page:
            shows(page, "3 jobs found")
            page.get_by_role("button", name="All that match").click()
            page.get_by_label("Action").select_option("delete")
            page.get_by_role("button", name="Show the plan").click()
            page.locator("dialog h2", has_text="Delete: 3 jobs of “bulk”").wait_for()
            assert tube.stats()["ready"] == 5
            page.get_by_role("button", name="Delete 3 jobs").click()
            page.locator(".toast", has_text="3 jobs changed").wait_for()
        assert tube.stats()["ready"] == 2
        tube.drop()


# ---- Live updates ----------------------------------------------------------------------------------------------------


def test_live_updates_keep_focus_and_selection(browser: Any, site: Site) -> None:
    with site.queue() as queue, opened(browser, f"{site.url}/tubes") as page:
        tube = queue.tube("live")
        row = page.locator("tr", has_text="live").first
        row.wait_for()
        row.get_by_role("checkbox").focus()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('tbody a'))")
        chosen = page.evaluate("String(getSelection())")
        ready = row.locator("td").nth(4)
        for count in (7, 9):
            tube.put_many(["x"] * (count - tube.stats()["ready"]))
            row.locator("td", has_text=re.compile(f"^{count}$")).first.wait_for()
        assert ready.count() == 1
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Select live"
        assert page.evaluate("String(getSelection())") == chosen != ""
        tube.drop()


def test_a_table_of_a_thousand_tubes_updates_quickly(browser: Any, empty_site: Site) -> None:
    names = [f"tube {number:04}" for number in range(1_000)]
    with empty_site.queue() as queue:
        for name in names:
            queue.tube(name)
        with opened(browser, f"{empty_site.url}/tubes") as page:
            page.locator("tbody tr").nth(999).wait_for(state="attached")
            update = """async () => {
                const load = (name) => import(document.querySelector('script').src.replace('pages/tubes', name));
                const { LiveTable } = await load('table');
                const { tubeColumns, RateHistory } = await load('tube_columns');
                const table = new LiveTable({caption: 'x', columns: tubeColumns(new RateHistory()), key: (r) => r.name,
                    sort: 'ready'});
                document.querySelector('main').append(table.element);
                const rows = (n) => Array.from({length: 1000}, (_, i) => ({name: 't' + i, type: 'fifo',
                    ready: (i * n) % 977, taken: n, delayed: 0, buried: 0, oldest_ms: n, consumers: 1, in_rate: n,
                    ack_rate: n}));
                table.update(rows(1));
                const start = performance.now();
                table.update(rows(2));
                return performance.now() - start;
            }"""
            # Far more than it takes (about 30 ms), because the machine may be busy.
            assert page.evaluate(update) < 1_000
        for name in names:
            queue.find_tube(name).drop()


def test_a_dead_node_makes_data_stale_until_it_is_back(browser: Any, tmp_path: Path) -> None:
    site = Site(tmp_path)
    with opened(browser, f"{site.url}/tubes") as page:
        page.locator("#live[data-state=live]").wait_for()
        site.node.kill()
        page.locator("#live[data-state=stale]", has_text="Stale for").wait_for()
        assert "Data is from" in page.locator("#live").get_attribute("title")
        site.node.start_again()
        page.locator("#live[data-state=live]").wait_for()
    site.stop()


def test_ten_tabs_are_live_one_after_the_other(browser: Any, site: Site) -> None:
    """A browser opens six connections to a host, so a hidden tab must not keep one."""
    context = browser.new_context()
    pages = []
    hide = """Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'))"""
    for _ in range(10):
        page = context.new_page()
        page.goto(f"{site.url}/tubes")
        page.locator("#live[data-state=live]").wait_for()
        page.evaluate(hide % "true")
        pages.append(page)
    pages[0].evaluate(hide % "false")
    pages[0].locator("#live[data-state=live]").wait_for()
    context.close()


# ---- Looks, access and size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1400])
def test_pages_fit_into_any_width(browser: Any, site: Site, width: int) -> None:
    with opened(browser, site.url, viewport={"width": width, "height": 844}) as page:
        for path in [*PAGES, "/tubes/emails"]:
            page.goto(site.url + path)
            page.locator("h1").wait_for()
            page.locator("main table, main dl, main .chart").first.wait_for(state="attached")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        if width == 390:
            page.get_by_role("button", name="Menu").click()
            page.get_by_role("link", name="Cluster").click()
            page.wait_for_url("**/cluster")


def test_the_theme_is_kept_without_a_flash(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/settings", color_scheme="dark") as page:
        background = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(background) == "rgb(15, 19, 24)"
        page.get_by_role("button", name="light").click()
        assert page.evaluate(background) == "rgb(244, 246, 248)"
        page.goto(f"{site.url}/tubes")
        assert page.locator("html").get_attribute("data-theme") == "light"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, site: Site, scheme: str) -> None:
    package = find_spec("axe_playwright_python")
    assert package is not None and package.origin is not None
    axe = Path(package.origin).with_name("axe.min.js").read_text()
    # The script of axe is no file of the dashboard, so the policy is off here.
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    for path in [*PAGES, "/tubes/emails"]:
        page.goto(site.url + path)
        page.locator("h1").wait_for()
        page.locator("main table, main dl, main .chart").first.wait_for(state="attached")
        page.evaluate(axe)
        found = page.evaluate("async () => (await axe.run()).violations.map((v) => [v.id, v.nodes.map((n) => n.html)])")
        assert found == [], path
    context.close()


def test_keys_open_pages_and_the_palette_finds_a_tube(browser: Any, site: Site) -> None:
    with opened(browser, site.url) as page:
        page.locator("h1").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/tubes")
        page.locator("h1", has_text="Tubes").wait_for()
        page.keyboard.press("?")
        page.locator("dialog", has_text="Keyboard shortcuts").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox").fill("key")
        page.get_by_role("option", name="keyed").click()
        page.wait_for_url("**/tubes/keyed")
        shows(page, "production")


def test_a_table_is_exported_as_csv_and_json(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/tubes?match=k*") as page:
        page.locator("tbody tr").first.wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="JSON").click()
        records = json.loads(Path(download.value.path()).read_text())
        assert [(row["name"], row["ready"]) for row in records] == [("keyed", 2)]
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        assert Path(download.value.path()).read_text().startswith("name,status,type,ready,")


def test_the_first_load_is_small_and_comes_from_here_only(browser: Any, site: Site) -> None:
    sizes: dict[str, int] = {}
    context = browser.new_context()
    page = context.new_page()

    def measure(request: Any) -> None:
        if "/events" not in request.url:
            sizes[request.url] = request.sizes()["responseBodySize"]

    page.on("requestfinished", measure)
    page.goto(site.url)
    page.locator("#live[data-state=live]").wait_for()
    assert all(url.startswith(site.url) for url in sizes)
    assert sum(sizes.values()) <= 60_000, sizes
    context.close()


def test_numbers_and_scales_are_those_of_the_report(browser: Any, site: Site) -> None:
    from penstock.report import units
    from penstock.report.charts.scales import DURATIONS_MS, DurationScale, LinearScale

    durations = [0, 999, 1_000, 9_999, 12_345, 60_000, 725_000, 90_061_000]
    counts = [0, 7, 950, 999, 1_000, 1_234, 34_567, 999_499, 999_500, 4_000_000]
    values = [[0, 1, 2], [3, 17], [980], [12_345, 4]]
    with opened(browser, site.url) as page:
        script = """async ([durations, counts, values]) => {
            const base = document.querySelector('script').src.replace('pages/overview.js', '');
            const format = await import(base + 'format.js');
            const scales = await import(base + 'scales.js');
            const ticks = (scale) => scale.ticks.map(([place, label]) => [Math.round(place * 1e6), label]);
            return [durations.map(format.durationText), counts.map(format.shortCountText),
                counts.map(format.countText), counts.map(format.bytesText), scales.DURATIONS_MS,
                values.map((each) => ticks(scales.linearScale(each))),
                values.map((each) => ticks(scales.durationScale(each)))];
        }"""
        found = page.evaluate(script, [durations, counts, values])

    def ticks(scale: Any) -> list[list[Any]]:
        return [[round(place * 1e6), label] for place, label in scale.ticks()]

    assert found == [
        [units.duration_text(ms) for ms in durations],
        [units.short_count_text(count) for count in counts],
        [units.count_text(count) for count in counts],
        [units.bytes_text(count) for count in counts],
        list(DURATIONS_MS),
        [ticks(LinearScale(each)) for each in values],
        [ticks(DurationScale(each)) for each in values],
    ]
