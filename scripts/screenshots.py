"""Makes the two screenshots of the README: python scripts/screenshots.py

It starts a server with a dashboard, puts jobs as the demo does (pages of domains, of which some fail), and opens the
overview and a tube in the system's Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import penstock
from penstock.cli.cluster_nodes import wait_for
from penstock.cli.demos import crawler
from penstock.cli.demos.crawl_demo import produce
from penstock.cli.demos.demo_server import server

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
PORT = 7_785
# The charts show this much time.
SECONDS = 45
SIZE = {"width": 1280, "height": 800}


def keep_busy(url: str, done: threading.Event) -> None:
    """Crawl the pages of the demo until `done` is set."""
    queue = penstock.connect(url)
    _, tube = crawler.tubes(queue)
    visits = crawler.Visits()
    for seed in range(crawler.WORKERS):
        threading.Thread(target=crawler.work, args=(queue, tube.name, visits, done, seed), daemon=True).start()
    while not done.is_set():
        produce(tube, crawler.make_pages(400, seed=int(time.time())))
        done.wait(0.4)


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    IMAGES.mkdir(exist_ok=True)
    done = threading.Event()
    with tempfile.TemporaryDirectory() as home, server(Path(home)) as url:
        queue = penstock.connect(url)
        queue.tube("reports.nightly").put_many([{"month": month} for month in range(1, 13)])
        command = [sys.executable, "-m", "penstock", "dashboard", "--url", url, "--port", str(PORT), "--quiet"]
        dashboard = subprocess.Popen(command)
        threading.Thread(target=keep_busy, args=(url, done), daemon=True).start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                pages = {
                    name: browser.new_page(viewport=SIZE, color_scheme=scheme)
                    for name, scheme in (("overview", "light"), ("tube", "dark"))
                }
                wait_for(lambda: _opens(pages["overview"], f"http://127.0.0.1:{PORT}/"), 20)
                pages["tube"].goto(f"http://127.0.0.1:{PORT}/tubes/pages-utube")
                pages["tube"].wait_for_timeout(SECONDS * 1_000)
                for name, page in pages.items():
                    page.screenshot(path=IMAGES / f"dashboard-{name}.png")
        finally:
            done.set()
            dashboard.terminate()
            dashboard.wait()
    return 0


def _opens(page: object, url: str) -> bool:
    try:
        page.goto(url)  # type: ignore[attr-defined]
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
