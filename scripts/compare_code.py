"""Compare the code of two commits, to prove that a change of language, names or places changes nothing else.

    python scripts/compare_code.py OLD [NEW] [--map FILE] [--strings] [--paths PATH ...]

The multisets of all functions and of the other statements of all modules and classes must be equal. Docstrings,
comments and imports are left out, and so is the text of strings, unless --strings is given. Without NEW, the working
tree is compared. --map names a file with lines `old.full.name new`. Identifiers that the map connects count as equal.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent


def sources_of(commit: str | None, paths: list[str]) -> dict[str, str]:
    """Return the Python files of a commit, or of the working tree, by their names."""
    if commit is None:
        found = [path for name in paths for path in sorted((ROOT / name).rglob("*.py"))]
        return {str(path.relative_to(ROOT)): path.read_text() for path in found}
    listed = _git("ls-tree", "-r", "--name-only", commit, "--", *paths).splitlines()
    return {name: _git("show", f"{commit}:{name}") for name in listed if name.endswith(".py")}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Normalizer(ast.NodeTransformer):
    """Removes docstrings and the text of strings, and renames identifiers."""

    def __init__(self, renames: dict[str, str], keep_strings: bool) -> None:
        self._renames = renames
        self._keep_strings = keep_strings

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Rename every identifier of a node."""
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                setattr(node, field, self._renames.get(value, value))
        super().generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_left_out(each)]  # type: ignore[attr-defined]
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Forget the text of a string, because errors and help texts may be reworded."""
        if not self._keep_strings and isinstance(node.value, str | bytes):
            return ast.copy_location(ast.Constant(type(node.value)()), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Keep the expressions of an f-string, in any order."""
        self.generic_visit(node)
        if self._keep_strings:
            return node
        values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        return ast.JoinedStr(sorted(values, key=ast.dump))


def _is_left_out(node: ast.AST) -> bool:
    """Return whether a statement is an import or a docstring, or only takes the place of one."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def pieces(source: str, renames: dict[str, str], keep_strings: bool) -> Counter[str]:
    """Return the dump of every function, and of every other statement of a module or class."""
    tree = Normalizer(renames, keep_strings).visit(ast.parse(source))
    found: Counter[str] = Counter()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        for child in getattr(node, "body", []):
            if isinstance(child, ast.ClassDef):
                found[f"class {child.name} {[ast.dump(base) for base in child.bases]}"] += 1
                stack.append(child)
            else:
                found[ast.dump(child)] += 1
    return found


def connected_names(text: str) -> dict[str, str]:
    """Return for each identifier of a map the one that stands for all identifiers that are connected with it."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    for line in text.splitlines():
        if line and not line.startswith("#"):
            old, new = (name.rpartition(".")[2] for name in line.split()[:2])
            parents[root(old)] = root(new)
    return {name: root(name) for name in parents}


def main() -> int:
    """Print the pieces that only one side has. Return 1 if there are any."""
    parser = argparse.ArgumentParser(description="Compare the code of two commits.")
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--map", type=Path)
    parser.add_argument("--strings", action="store_true", help="compare the text of strings, too")
    parser.add_argument("--paths", nargs="*", default=["src"])
    options = parser.parse_args()
    renames = connected_names(options.map.read_text()) if options.map else {}
    sides = []
    for commit in (options.old, options.new):
        found: Counter[str] = Counter()
        for source in sources_of(commit, options.paths).values():
            found += pieces(source, renames, options.strings)
        sides.append(found)
    old, new = sides
    for title, extra in (("only in OLD", old - new), ("only in NEW", new - old)):
        for piece, times in extra.items():
            print(f"{title} x{times}: {piece[:300]}")
    equal = old == new
    print(f"{sum(old.values())} pieces before, {sum(new.values())} after: {'equal' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
