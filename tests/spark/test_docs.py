"""Examples of Spark in the documentation run, and print what the page says.

They are the ```py blocks of a page: as ```python blocks elsewhere, but run here, where a session is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_examples import PAGES, Page, blocks_of, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.server.serving import Server


def examples(path: Path) -> Page:
    return Page(path, [block for block in blocks_of(path.read_text()) if block.language == "py"])


EXAMPLES = [page for page in map(examples, PAGES) if page.blocks]


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: name_of(page.path, 1))
def test_the_examples_of_a_page_print_what_it_says(
    page: Page, spark: SparkSession, start: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.port = start("--appendfsync", "everysec").port
    monkeypatch.chdir(tmp_path)
    for block in page.blocks:
        assert page.run(block) == block.expected, name_of(page.path, block.line)
