"""The SQL files of the pipeline."""

from importlib.resources import files

from penstock.pipeline.audit import PROMISES
from penstock.pipeline.queries import question
from penstock.pipeline.tables import GOLD


def test_every_query_starts_with_the_question_that_it_answers() -> None:
    folder = files("penstock.pipeline") / "sql"
    names = [f"{layer.name}/{file.name.removesuffix('.sql')}" for layer in folder.iterdir() for file in layer.iterdir()]
    assert {*(table.path for table in GOLD), *(f"audit/{name}" for name in PROMISES)} < set(names)
    for name in names:
        assert "?" in question(name), name
