"""Login, rights and sessions of the dashboard in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .dashboard_site import Site, opened

USERS = """
[users.ada]
password = "ada's secret"
commands = ["read", "write", "admin"]

[users.viewer]
password = "viewing"
commands = ["read"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("login"), "--hide-bodies", config=USERS)
    with found.queue("ada", "ada's secret") as queue:
        queue.tube("emails").put({"to": "secret@example.org"})
    yield found
    found.stop()


def sign_in(page: Any, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_a_visitor_signs_in_returns_to_the_page_and_signs_out(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/tubes?match=em") as page:
        page.wait_for_url("**/login?next=*")
        sign_in(page, "ada", "wrong")
        page.locator("[role=alert]", has_text="wrong user").wait_for()
        sign_in(page, "ada", "ada's secret")
        page.wait_for_url("**/tubes?match=em")
        page.get_by_role("link", name="emails").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login?next=*")
        page.goto(f"{site.url}/tubes")
        page.wait_for_url("**/login?next=*")


def test_the_next_page_is_one_of_this_dashboard(browser: Any, site: Site) -> None:
    for other in ("//evil.example/x", "https://evil.example", "/\\evil.example"):
        with opened(browser, f"{site.url}/login?next={other}") as page:
            sign_in(page, "viewer", "viewing")
            page.locator("h1", has_text="Overview").wait_for()
            assert page.url == f"{site.url}/"


def test_a_reader_sees_actions_but_cannot_use_them(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/login?next=/tubes/emails") as page:
        sign_in(page, "viewer", "viewing")
        button = page.get_by_role("button", name="Put a job")
        button.wait_for()
        assert button.get_attribute("aria-disabled") == "true"
        button.click(force=True)
        page.locator(".toast", has_text="no write rights").wait_for()
        assert page.locator("dialog").count() == 0
        # The node refuses it, too.
        answer = page.evaluate(
            """async () => {
                const { csrf_token: token } = await (await fetch('/api/v1/me')).json();
                const headers = { 'X-CSRF-Token': token, 'Content-Type': 'application/json' };
                return (await fetch('/api/v1/tubes/emails', { method: 'DELETE', headers })).status;
            }"""
        )
        assert answer == 403


def test_a_request_without_the_csrf_token_changes_nothing(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/login?next=/tubes") as page:
        sign_in(page, "ada", "ada's secret")
        page.get_by_role("link", name="emails").wait_for()
        assert page.evaluate("fetch('/api/v1/tubes/emails', { method: 'DELETE' }).then((r) => r.status)") == 403


def test_bodies_are_hidden_on_every_page(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/login?next=/jobs") as page:
        sign_in(page, "ada", "ada's secret")
        page.get_by_text("(hidden)").wait_for()
        page.locator("tbody a").first.click()
        page.get_by_text("has hidden the bodies").wait_for()
        assert "secret@example.org" not in page.content()


def test_an_ended_session_leads_to_the_login_page(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/login?next=/tubes") as page:
        sign_in(page, "viewer", "viewing")
        page.get_by_role("link", name="emails").wait_for()
        page.context.clear_cookies()
        # The next request is refused, for example that of the palette.
        page.keyboard.press("Control+k")
        page.get_by_role("combobox").fill("em")
        page.wait_for_url("**/login?next=*")
