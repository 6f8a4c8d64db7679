"""A lake on Azure, as far as the emulator azurite shows it. PENSTOCK_AZURITE is the path of its program."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.lake.errors import BadPlace, LakeInUse
from penstock.lake.lake import Lake
from penstock.lake.tables import EVENTS
from penstock.lake.vacuum import vacuum

from .stores import ACCOUNT, ACCOUNT_KEY, Azure, azure_server
from .test_lake import events, puts, run_turn

AZURITE = os.environ.get("PENSTOCK_AZURITE", "")

pytestmark = pytest.mark.skipif(not AZURITE, reason="needs azurite, a package of npm; set PENSTOCK_AZURITE")

TURNS = 12  # After ten commits, deltalake writes a checkpoint.


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    with azure_server(AZURITE, tmp_path_factory.mktemp("azurite")) as store:
        yield store


def test_a_lake_is_written_in_turns_read_and_vacuumed(azure: Azure) -> None:
    place = azure.new_lake()
    for turn in range(1, TURNS + 1):
        run_turn(Lake(place, azure.options), turn, 10 * turn, 10 * turn + 10)
    lake = Lake(place, azure.options).pin()
    assert (lake.turn, lake.rows(EVENTS), puts(lake), len(lake.coverage())) == (TURNS, 10 * TURNS, [1] * TURNS, TURNS)
    events(Lake(place, azure.options), TURNS + 1, 0, 10)  # A file without a commit.
    unused = vacuum(Lake(place, azure.options), 0)
    assert [each.path.startswith(EVENTS.path) for each in unused].count(True) == 1
    found = Lake(place, azure.options).read(EVENTS)["position"].to_pylist()
    assert sorted(found) == list(range(10, 10 * TURNS + 10))


def test_the_second_of_two_writers_is_refused(azure: Azure) -> None:
    place = azure.new_lake()
    run_turn(Lake(place, azure.options), 1, 0, 10)
    one, other = Lake(place, azure.options), Lake(place, azure.options)
    one.begin_turn()
    one.commit_events(2, events(one, 2, 10, 20), {"n": 20}, {})
    with pytest.raises(LakeInUse, match="was changed by another writer"):
        other.commit_events(2, events(other, 2, 10, 20), {"n": 20}, {})
    assert Lake(place, azure.options).rows(EVENTS) == 20


def test_a_missing_container_is_named(azure: Azure) -> None:
    with pytest.raises(BadPlace, match="there is no bucket missing; create it first") as error:
        Lake(f"abfss://missing@{ACCOUNT}.dfs.core.windows.net/lake", azure.options).create()
    assert ACCOUNT_KEY not in str(error.value)
