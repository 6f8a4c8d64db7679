"""The SQL files of the pipeline."""

from importlib.resources import files

from penstock.lake.tables import DERIVED
from penstock.pipeline.judge.judge import CHAIN_RULES, EVENT_RULES, QUERIES
from penstock.pipeline.queries import question


def test_every_query_starts_with_the_question_that_it_answers() -> None:
    folder = files("penstock.pipeline") / "sql"
    names = [f"{layer.name}/{file.name.removesuffix('.sql')}" for layer in folder.iterdir() for file in layer.iterdir()]
    rules = {f"rules/{name}" for _, name in (*EVENT_RULES, *CHAIN_RULES)}
    assert {*(table.path for table in DERIVED), *(f"judge/{name}" for _, name in QUERIES), *rules} < set(names)
    for name in names:
        assert "?" in question(name), name
