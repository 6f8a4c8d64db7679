"""Draw a random sample of our prose, so that a reader who does not know the code can rate it.

    python scripts/sample_prose.py [--seed 1] [--docstrings 100] [--paragraphs 40]

The same seed draws the same passages from the same tree. Generated files and one-word docstrings are left out.
"""

from __future__ import annotations

import argparse
import ast
import random
import re

from prose import ROOT, markdown_prose, our_files


def docstrings() -> list[tuple[str, str]]:
    """Return every docstring of the source with its place."""
    found = []
    for path in our_files([ROOT / "src"]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and " " in text:
                    name = getattr(node, "name", "module")
                    found.append((f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {name}", text))
    return found


def paragraphs() -> list[tuple[str, str]]:
    """Return every paragraph of the README and the documentation with its page. Tables and lists are no paragraphs."""
    found = []
    for path in our_files([ROOT / "README.md", ROOT / "docs"]):
        for page in markdown_prose(path.read_text(), keep_names=True):
            for text in re.split(r"\n\s*\n", page):
                if len(text.split()) >= 8 and not text.lstrip().startswith(("#", "|", "-", "*", "<", "[")):
                    found.append((str(path.relative_to(ROOT)), text.strip()))
    return found


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description="Draw a random sample of our prose.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--docstrings", type=int, default=100)
    parser.add_argument("--paragraphs", type=int, default=40)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    for title, passages, count in (
        ("docstring", docstrings(), options.docstrings),
        ("paragraph", paragraphs(), options.paragraphs),
    ):
        for number, (place, text) in enumerate(chance.sample(passages, min(count, len(passages))), 1):
            print(f"\n{title} {number} ({place})\n{text}")


if __name__ == "__main__":
    main()
