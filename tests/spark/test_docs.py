"""The examples on the pages about Spark run, in the session that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.versions import LAST_ACK, Feature
from tests.docs.test_examples import SPARK_EXAMPLES, Page, a_server, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page.path, 1)) for page in SPARK_EXAMPLES])
def test_the_examples_on_a_page_about_spark_print_its_output(
    page: Page, spark: SparkSession, tmp_path: Path, needs_feature: Callable[[Feature], None]
) -> None:
    if "verdict" in page.path.read_text():
        # Verdicts are executed with the ack of their batch.
        needs_feature(LAST_ACK)
    with a_server(tmp_path) as (page.port, page.iproto_port):
        assert [page.run(block) for block in page.blocks] == [block.expected for block in page.blocks]
