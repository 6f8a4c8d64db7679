"""What all nodes have of a queue."""

from .guild import Guild


def test_lengths_are_those_of_all_nodes() -> None:
    guild = Guild(3)
    for number in range(3):
        guild[number].ask("addjob", "q", number, 1000, "replicate", 1)
        guild[number].ask("addjob", "q", number, 1000, "replicate", 1, "delay", 10)
    guild[0].ask("addjob", "q", "copied", 1000, "replicate", 3)
    guild[0].ask("getjob", "from", "q")
    told = {"ready": 3, "taken": 1, "delayed": 3, "buried": 0, "copies": 2, "nodes": 3, "missing": 0}
    assert guild[1].ask("global", "qlen", "q") == told


def test_who_does_not_answer_is_missing() -> None:
    guild = Guild(3)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    guild.isolate(2)
    client = guild[1].connect()
    assert client.ask("global", "qlen", "q") is None
    guild.run(1_000)
    told = client.answer_so_far()
    assert (told["ready"], told["nodes"], told["missing"]) == (1, 2, 1)


def test_the_first_jobs_of_all_nodes_are_shown_in_their_order() -> None:
    guild = Guild(3)
    ids = []
    for number in (2, 0, 1, 1, 0, 2):
        ids.append(guild[number].ask("addjob", "q", number, 1000, "replicate", 1))
        guild.now += 1
    assert [id for _, id, _ in guild[0].ask("global", "qpeek", "q", 4)] == ids[:4]
    assert guild[0].ask("global", "qpeek", "nosuch", 4) == []
    assert guild[0].ask("global", "qpeek", "q", 0).startswith("ERR")


def test_a_queue_is_emptied_on_all_nodes() -> None:
    guild = Guild(3)
    for number in range(9):
        guild[number % 3].ask("addjob", "q", number, 1000)
    told = guild[0].ask("global", "empty", "q")
    assert (told["deleted"], told["left"], told["missing"]) == (27, 0, 0)
    assert all(not node.jobs() for node in guild.nodes)
