"""Questions to all nodes about a queue."""

from penstock.core.job import Draft
from penstock.core.limits import SCAN_EXAMINED_MAX
from penstock.core.policy import UTUBE

from .cluster_nodes import NodeCluster


def test_global_lengths_are_sums_over_all_nodes() -> None:
    guild = NodeCluster(3)
    for number in range(3):
        guild[number].ask("addjob", "q", number, 1000, "replicate", 1)
        guild[number].ask("addjob", "q", number, 1000, "replicate", 1, "delay", 10)
    guild[0].ask("addjob", "q", "copied", 1000, "replicate", 3)
    guild[0].ask("getjob", "from", "q")
    told = {"ready": 3, "taken": 1, "delayed": 3, "buried": 0, "copies": 2, "nodes": 3, "missing": 0}
    assert guild[1].ask("global", "qlen", "q") == told


def test_nodes_that_do_not_answer_are_reported_as_missing() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    guild.isolate(2)
    client = guild[1].connect()
    assert client.ask("global", "qlen", "q") is None
    guild.run(1_000)
    told = client.answer_so_far()
    assert (told["ready"], told["nodes"], told["missing"]) == (1, 2, 1)


def test_the_first_jobs_of_all_nodes_are_shown_in_their_order() -> None:
    guild = NodeCluster(3)
    ids = []
    for number in (2, 0, 1, 1, 0, 2):
        ids.append(guild[number].ask("addjob", "q", number, 1000, "replicate", 1))
        guild.now += 1
    assert [id for _, id, _ in guild[0].ask("global", "qpeek", "q", 4)] == ids[:4]
    assert guild[0].ask("global", "qpeek", "nosuch", 4) == []
    assert guild[0].ask("global", "qpeek", "q", 0).startswith("ERR")


def test_of_many_jobs_with_keys_only_the_next_is_shown() -> None:
    """Finding more of them in order would require a scan of all jobs in one turn."""
    guild = NodeCluster(2)
    engine = guild[0].engine
    tube = engine.create_tube(b"keyed", UTUBE, guild.now)
    for _ in range(SCAN_EXAMINED_MAX + 1):
        engine.put(tube, Draft(b"body", key=b"k"), guild.now)
    assert len(guild[1].ask("global", "qpeek", "keyed", 4)) == 1
    engine.delete(engine.jobs.scan(0, 1)[0], guild.now)
    assert len(guild[1].ask("global", "qpeek", "keyed", 4)) == 4


def test_a_queue_is_emptied_on_all_nodes() -> None:
    guild = NodeCluster(3)
    for number in range(9):
        guild[number % 3].ask("addjob", "q", number, 1000)
    told = guild[0].ask("global", "empty", "q")
    assert (told["deleted"], told["left"], told["missing"]) == (27, 0, 0)
    assert all(not node.jobs() for node in guild.nodes)


def scanned(guild: NodeCluster, *words: object) -> list[tuple[bytes, bytes, bytes]]:
    """Scan the jobs of all nodes, and return the node, id and state of each."""
    found: list[tuple[bytes, bytes, bytes]] = []
    cursor: bytes | None = None
    while cursor != b"0":
        told = guild.nodes[-1].ask("global", "scan", cursor or 0, *words)
        cursor = told["cursor"]
        found += [(told["node"], job["id"], job["state"]) for job in told["jobs"]]
    return found


def test_a_scan_returns_the_jobs_of_all_nodes() -> None:
    guild = NodeCluster(3)
    nodes = [node.id for node in guild.nodes]
    ids = [guild[number % 3].ask("addjob", f"q{number}", number, 1000, "replicate", 1) for number in range(15)]
    assert sorted(scanned(guild, "count", 2)) == sorted((nodes[at % 3], id, b"ready") for at, id in enumerate(ids))
    assert scanned(guild, "tube", "q4") == [(nodes[1], ids[4], b"ready")]
    late = guild[0].ask("addjob", "late", "body", 1000, "delay", 100, "replicate", 1)
    copied = guild[1].ask("addjob", "copied", "body", 1000, "replicate", 3)
    assert scanned(guild, "tube", "late", "state", "delayed", "buried") == [(nodes[0], late, b"delayed")]
    states = {node: state for node, id, state in scanned(guild, "tube", "copied") if id == copied}
    assert states == {nodes[0]: b"copy", nodes[1]: b"ready", nodes[2]: b"copy"}
    assert guild[0].ask("global", "scan", "nonsense").startswith("RANGE")


def test_a_scan_continues_after_a_node_that_does_not_answer() -> None:
    guild = NodeCluster(3)
    id = guild[2].ask("addjob", "q", "body", 1000, "replicate", 1)
    guild.isolate(1)
    client = guild[0].connect()
    told = client.ask("global", "scan", 0)
    assert client.ask("global", "scan", told["cursor"]) is None
    guild.run(1_000)
    told = client.answer_so_far()
    assert (told["node"], told["missing"], told["jobs"]) == (guild[1].id, 1, [])
    told = client.ask("global", "scan", told["cursor"])
    assert (told["cursor"], told["missing"], [job["id"] for job in told["jobs"]]) == (b"0", 0, [id])
