"""Count words that make our prose hard to read, in docstrings, comments and documentation.

    python scripts/prose.py [PATH ...]      count per file, the worst files first; without paths: everything we write

The limits are checked by tests/test_prose.py. Code blocks and generated tables of the documentation are not
counted, because their words come from elsewhere.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Words that leave open which program or person acts.
UNCLEAR = re.compile(
    r"\b(?:whoever|whatever|somebody|nobody|those who|so many|so long|is told of|told|is there for)\b", re.IGNORECASE
)
WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")

# Limits for the whole code base, in occurrences per 1,000 words.
UNCLEAR_MAX = 0.5
WHAT_MAX = 4.0


@dataclass(frozen=True)
class Count:
    """How many words a text has, and how many of them are unclear."""

    words: int = 0
    unclear: int = 0
    whats: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.words + other.words, self.unclear + other.unclear, self.whats + other.whats)

    def per_thousand(self) -> tuple[float, float]:
        """Return the unclear words and the occurrences of "what" per 1,000 words."""
        words = max(1, self.words)
        return 1000 * self.unclear / words, 1000 * self.whats / words


def count(text: str) -> Count:
    """Count the words of a text."""
    starts = 1 if text.startswith("The same") else 0
    return Count(len(WORD.findall(text)), starts + len(UNCLEAR.findall(text)), len(WHAT.findall(text)))


def python_prose(source: str) -> Iterator[str]:
    """Yield every docstring and comment of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#: ")


def markdown_prose(source: str, keep_names: bool = False) -> Iterator[str]:
    """Yield the prose of a Markdown page, without code and generated parts. `keep_names` keeps code within lines."""
    source = re.sub(r"<!-- generated: .*?<!-- end -->", "", source, flags=re.DOTALL)
    source = re.sub(r"^( *)(```|~~~).*?^\1\2", "", source, flags=re.DOTALL | re.MULTILINE)
    yield source if keep_names else re.sub(r"`[^`]*`", "", source)


def prose_of(path: Path) -> Iterator[str]:
    """Yield the prose of a file."""
    source = path.read_text()
    yield from python_prose(source) if path.suffix == ".py" else markdown_prose(source)


def our_files(paths: Iterable[Path] = ()) -> list[Path]:
    """Return the Python files and Markdown pages below the paths, or all that we write."""
    chosen = list(paths) or [
        ROOT / name for name in ("README.md", "CHANGELOG.md", "docs", "src", "examples", "scripts")
    ]
    found = []
    for path in chosen:
        found += [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.md")]
    return sorted(found)


def main(words: list[str]) -> None:
    """Print the counts per file and in total."""
    total = Count()
    rows = []
    for path in our_files(Path(word) for word in words):
        counted = sum((count(text) for text in prose_of(path)), Count())
        total += counted
        rows.append((counted.unclear + counted.whats, counted, path))
    for _, counted, path in sorted(rows, key=lambda row: (-row[0], str(row[2]))):
        if counted.unclear or counted.whats:
            print(f"{counted.unclear:5} unclear {counted.whats:5} what {counted.words:7} words  {path}")
    unclear, whats = total.per_thousand()
    print(f"{unclear:.2f} unclear words per 1,000 (at most {UNCLEAR_MAX}), {whats:.2f} what (at most {WHAT_MAX})")


if __name__ == "__main__":
    main(sys.argv[1:])
