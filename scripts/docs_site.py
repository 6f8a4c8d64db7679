"""Build the documentation site from README.md, docs/ and the docstrings: `make docs-site`.

    python scripts/docs_site.py            collect the pages, and build the site into build/site
    python scripts/docs_site.py --collect  only collect the pages into build/site-source

The pages in docs/ link to each other and to files of the repository, so that they can be read on GitHub. Here, links to
files that are not pages become links to the repository. The navigation is the list of pages in docs/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SOURCE = BUILD / "site-source"
PYTHON_PAGE = "reference/python-api.md"

# Pages outside docs/, by their places on the site. README.md is the first page of the site.
OTHER_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "docs/README.md": "contents.md",
}
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs/README.md")

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"^(```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## ([^:\n]+)", flags=re.MULTILINE)
_LISTED = re.compile(r"\[[^\]]+\]\(([^)#\s]+\.md)\)")


def repository() -> str:
    """Return the address of the repository, which pyproject.toml has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["urls"]["Source"])


def places() -> dict[str, str]:
    """Return the place on the site of each page, by its path in the repository."""
    docs = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))
    return {path: path.removeprefix("docs/") for path in docs} | OTHER_PAGES


def rewritten(text: str, page: str, to: dict[str, str]) -> str:
    """Return a page with its links changed to the places on the site. Code blocks stay as they are."""
    here = Path(to[page]).parent

    def link(found: re.Match[str]) -> str:
        target, hash, anchor = found[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = os.path.normpath(Path(page).parent / target)
        if path in to:
            target = os.path.relpath(to[path], here)
        elif (ROOT / path).is_dir() and f"{path}/README.md" in to:
            target = os.path.relpath(to[f"{path}/README.md"], here)
        elif found[1].startswith("!"):
            target = os.path.relpath(copied(path), here)
        else:
            target = f"{repository()}/blob/main/{path}"
        return f"{found[1]}{target}{hash}{anchor}{found[3]}"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def copied(path: str) -> str:
    """Copy an image to the site, and return its place."""
    place = f"images/{Path(path).name}"
    (SOURCE / place).parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / path, SOURCE / place)
    return place


def navigation(to: dict[str, str]) -> list[object]:
    """Return the navigation: the sections of docs/README.md with their pages, and the pages about the project."""
    contents = (ROOT / "docs" / "README.md").read_text()
    parts = _SECTION.split(contents)
    nav: list[object] = [{"Penstock": to["README.md"]}]
    listed = set()
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        pages = [os.path.normpath(Path("docs") / found) for found in _LISTED.findall(text)]
        section = [to[page] for page in pages if page in to and to[page] not in listed]
        listed.update(section)
        if title == "Reference":
            section.insert(0, PYTHON_PAGE)
        nav.append({title: section})
    project = [to[page] for page in PROJECT_PAGES]
    # The rest: decisions, the glossary, and pages that only other pages link to.
    decisions = [place for path, place in to.items() if path.startswith("docs/adr/") and place not in listed]
    rest = sorted(set(to.values()) - listed - set(decisions) - set(project) - {to["README.md"]})
    nav.append({"Project": [*project, *rest, {"Decisions": decisions}]})
    return nav


def python_page() -> str:
    """Return the page with the docstrings of everything that `penstock` exports."""
    sys.path.insert(0, str(ROOT / "src"))
    import penstock

    exported = [(name, getattr(penstock, name)) for name in penstock.__all__]
    errors = [name for name, value in exported if isinstance(value, type) and issubclass(value, Exception)]
    functions = [name for name, value in exported if not isinstance(value, type) and callable(value)]
    types = [name for name, value in exported if isinstance(value, type) and name not in errors]
    groups = {"Functions": functions, "Types": types, "Errors": errors}
    text = ["# Python API", "", "Everything that the module `penstock` exports, from its docstrings.", ""]
    for title, names in groups.items():
        text += [f"## {title}", ""]
        for name in names:
            value = getattr(penstock, name)
            text += [f"::: {value.__module__}.{value.__qualname__}", ""]
    return "\n".join(text)


def collect() -> None:
    """Write all pages and the navigation into build/site-source."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    to = places()
    for page, place in to.items():
        target = SOURCE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewritten((ROOT / page).read_text(), page, to))
    (SOURCE / PYTHON_PAGE).write_text(python_page())
    # JSON is also YAML.
    configuration = {"INHERIT": "../mkdocs.yml", "docs_dir": "site-source", "site_dir": "site", "nav": navigation(to)}
    (BUILD / "mkdocs.yml").write_text(json.dumps(configuration, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--collect", action="store_true", help="only collect the pages")
    wanted = parser.parse_args()
    collect()
    if not wanted.collect:
        # Strict: a link or an anchor that does not exist fails the build.
        words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", BUILD / "mkdocs.yml"]
        sys.exit(subprocess.run(words, check=False).returncode)


if __name__ == "__main__":
    main()
