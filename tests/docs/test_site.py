"""`make docs-site` builds the documentation site, and fails if a link or an anchor does not exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parent.parent.parent
# Elements that make a browser load something.
LOADED = re.compile(
    r"<(?:script|img|iframe|link rel=\"(?:stylesheet|preconnect|icon)\")[^>]*?(?:src|href)=\"?(http[^\" >]+)"
)


@pytest.fixture(scope="module")
def site() -> Path:
    words = [sys.executable, str(ROOT / "scripts" / "docs_site.py")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build" / "site"


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "README.md":
            assert (site / page.relative_to(ROOT / "docs").with_suffix("") / "index.html").exists(), page
    assert (site / "index.html").exists() and (site / "search.json").stat().st_size > 100_000


def test_the_python_reference_has_everything_that_penstock_exports(site: Path) -> None:
    page = (site / "reference" / "python-api" / "index.html").read_text()
    missing = [name for name in penstock.__all__ if callable(getattr(penstock, name)) and f">{name}<" not in page]
    assert missing == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    found = {address for page in site.rglob("*.html") for address in LOADED.findall(page.read_text())}
    assert found == set()


@pytest.mark.parametrize("link", ["[gone](nowhere.md)", "[gone](index.md#nowhere)"])
def test_a_link_to_nothing_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# A page\n\n{link}\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: A site\ndocs_dir: pages\n")
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "does not exist" in done.stdout + done.stderr
