"""Which holder queues a job again, and when."""

import pytest

from penstock.cluster import messages as m
from penstock.cluster.requeue import wins
from penstock.core import states as s
from penstock.core.copy_commands import postpone
from tests.spilled_bodies import spill

from .cluster_nodes import NodeCluster


def show(guild: NodeCluster, number: int, id: bytes) -> dict[bytes, object]:
    shown = guild[number].ask("show", id)
    return dict(zip(shown[::2], shown[1::2], strict=True))


def test_the_retry_time_counts_from_the_delivery_on_every_node() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    guild.run(3_200)
    assert guild[0].ask("getjob", "from", "q")
    guild.run(3_900)
    assert guild.queued("q") == [0, 0, 0]
    guild.run(200)
    assert guild.queued("q") == [1, 0, 0]
    assert [show(guild, number, id)[b"additional-deliveries"] for number in range(3)] == [1, 1, 1]


def test_a_holder_queues_the_job_when_the_node_that_delivered_it_is_gone() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("getjob", "from", "q")
    guild.down.add(0)
    guild.isolate(0)
    guild.run(4_000)
    assert sorted(guild[number].ask("qlen", "q") for number in (1, 2)) == [0, 1]


def test_a_queued_job_is_not_queued_by_another_holder() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 1)
    guild.run(20_000)
    assert guild.queued("q") == [1, 0, 0]
    assert guild.sent[m.WILLQUEUE] > 10


def test_of_two_holders_that_queued_a_job_one_keeps_it() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 1, "replicate", 2)
    guild.isolate(0)
    guild.run(3_000)
    assert guild.queued("q") == [1, 1]
    guild.heal()
    assert guild[0].ask("getjob", "nohang", "from", "other") is None
    guild[1].ask("dequeue", id)
    guild[1].ask("enqueue", id)
    assert sum(guild.queued("q")) == 1
    first = wins(guild[0].id, guild[1].id, id)
    assert guild.queued("q") == ([1, 0] if first else [0, 1])


def test_a_nack_at_another_holder_ends_the_delivery() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000)
    guild[0].ask("getjob", "from", "q")
    assert guild[1].ask("nack", id) == 1
    assert guild.queued("q") == [0, 1, 0]
    assert [show(guild, number, id)[b"nacks"] for number in range(3)] == [1, 1, 1]
    assert guild[0].ask("ackjob", id) == 1
    assert guild.queued("q") == [0, 0, 0]


def test_working_at_another_holder_gives_more_time_everywhere() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 4)
    guild[0].ask("getjob", "from", "q")
    for _ in range(5):
        guild.run(3_000)
        assert guild[1].ask("working", id) == 4
    assert guild.queued("q") == [0, 0, 0]
    guild.run(4_600)
    assert sum(guild.queued("q")) == 1


def test_a_delayed_job_is_queued_once_by_its_maker() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "delay", 3, "retry", 2)
    guild.run(2_950)
    assert guild.queued("q") == [0, 0, 0]
    guild.run(100)
    assert guild.queued("q") == [1, 0, 0]
    guild.run(10_000)
    assert guild.queued("q") == [1, 0, 0]
    assert show(guild, 0, id)[b"additional-deliveries"] == 0


def test_a_queue_paused_everywhere_takes_nothing() -> None:
    guild = NodeCluster(3)
    assert guild[0].ask("pause", "q", "in", "bcast") == b"in"
    assert guild[2].ask("addjob", "q", "body", 0) == "PAUSED Queue paused in input, try later"
    assert guild[0].ask("pause", "q", "none", "bcast") == b"none"
    assert guild[2].ask("addjob", "q", "body", 1000)


def test_a_holder_also_warns_holders_that_only_another_holder_knows() -> None:
    guild = NodeCluster(4)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 2)
    stranger = next(node for node in guild.nodes if not node.jobs())
    stranger.cluster.federation.want(b"q", 1_000, guild.now)
    guild.settle()
    assert stranger.ask("qlen", "q") == 1
    guild.run(20_000)
    assert sum(guild.queued("q")) == 1


def test_a_job_that_is_buried_on_one_node_is_queued_by_none() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("take", "q") and guild[0].ask("bury", id) == b"OK"
    guild.run(20_000)
    assert [node.jobs()[0].state for node in guild.nodes] == [s.BURIED, s.DELAYED, s.DELAYED]
    # A node that queued the job while it was cut off does not queue it again.
    guild.isolate(0)
    guild.run(5_000)
    second = guild[guild.queued("q").index(1)]
    guild.heal()
    assert second.ask("getjob", "from", "q")
    guild.run(20_000)
    assert guild.queued("q") == [0, 0, 0]
    assert guild[0].ask("kick", "q") == 1
    guild.run(20_000)
    assert guild.queued("q") == [1, 0, 0]


def test_a_buried_job_is_queued_again_by_an_enqueue_at_another_holder() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("bury", id) == b"OK"
    assert guild[1].ask("enqueue", id) == 1
    guild.run(20_000)
    assert guild.queued("q") == [0, 1, 0]


def test_a_job_that_is_deleted_on_one_node_is_gone_from_all() -> None:
    guild = NodeCluster(4)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 3, "retry", 2)
    others = [node for node in guild.nodes[1:] if node.jobs()]
    guild.isolate(others[0].number)
    assert guild[0].ask("job", "delete", id) == 1
    guild.heal()
    # A node that did not receive DELJOB asks the others first, while they keep tombstones.
    guild.run(20_000)
    assert not any(node.jobs() for node in guild.nodes)


def test_deljob_deletes_the_copy_of_one_node_only() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("deljob", id) == 1
    guild.run(20_000)
    assert sum(guild.queued("q")) == 1


def test_a_job_whose_body_is_damaged_here_is_delivered_by_another_holder() -> None:
    guild = NodeCluster(2, disks=True)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2, "replicate", 2)
    spill(guild[0].engine, guild[0].jobs()[0], 1, 1 << 40)
    assert guild[0].ask("getjob", "nohang", "from", "q").startswith("DAMAGED")
    guild.run(5_000)
    assert guild.queued("q") == [0, 1]
    assert guild[1].ask("getjob", "nohang", "from", "q") == [[b"q", id, b"body"]]


@pytest.mark.parametrize("by_policy", [False, True])
def test_a_job_that_moves_to_a_strict_tube_loses_its_copies(by_policy: bool) -> None:
    guild = NodeCluster(4, disks=True)
    guild[0].ask("tube", "create", "target")
    if by_policy:
        guild[0].ask("tube", "create", "q", "type", "disque", "retry", "1x then move target")
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 3, "retry", 2)
    lonely = next(node for node in guild.nodes[1:] if node.jobs())
    guild.isolate(lonely.number)
    if by_policy:
        guild[0].ask("take", "q")
        guild[0].ask("nack", id)
    else:
        assert guild[0].ask("job", "move", id, "target") == b"OK"
    guild.run(500)
    assert [node.number for node in guild.nodes if node.jobs()] == [0, lonely.number]
    guild.restart(0)
    guild.heal()
    # A node that did not receive DELJOB sends WILLQUEUE, and the answer tells it to delete its copy.
    guild.run(20_000)
    assert [[job.tube for job in node.jobs()] for node in guild.nodes] == [
        [guild[0].engine.tubes[b"target"].slot],
        [],
        [],
        [],
    ]
    assert guild[0].ask("take", "target") and guild[0].ask("ack", id) == 1
    guild.run(20_000)
    assert not any(node.jobs() for node in guild.nodes)


def test_a_job_that_returns_from_a_strict_tube_is_available_on_all_nodes() -> None:
    guild = NodeCluster(3)
    guild[0].ask("tube", "create", "dead")
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    for tube in ("dead", "q"):
        assert guild[0].ask("job", "move", id, tube) == b"OK"
        guild.run(100)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    guild.run(20_000)
    assert sum(guild.queued("q")) == 1
    assert guild[2].ask("getjob", "from", "q") == [[b"q", id, b"body"]] and guild[2].ask("ackjob", id) == 1
    guild.run(20_000)
    assert not any(node.jobs() for node in guild.nodes)


def test_a_job_that_moves_to_another_shared_queue_keeps_its_copies() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "target", "other", 1000, "replicate", 1)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("job", "move", id, "target") == b"OK"
    guild.run(20_000)
    assert guild.queued("q") == [0, 0, 0] and guild.queued("target") == [2, 0, 0]
    assert guild[0].ask("ackjob", id) == 1
    guild.run(20_000)
    assert [len(node.jobs()) for node in guild.nodes] == [1, 0, 0]


def test_a_job_that_is_switched_to_done_is_not_queued_and_can_be_acked_elsewhere() -> None:
    guild = NodeCluster(3)
    id = guild[0].ask("addjob", "q", "body", 1000, "retry", 2)
    assert guild[0].ask("job", "switch", id, "done") == b"OK"
    guild.run(20_000)
    assert guild.queued("q") == [0, 0, 0]
    assert guild[1].ask("ackjob", id) == 1
    guild.run(20_000)
    assert not any(node.jobs() for node in guild.nodes)


def test_of_two_holders_that_are_about_to_queue_a_job_one_yields() -> None:
    """One must yield before the job is queued, because a queued job may be delivered before the QUEUED arrives."""
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 60)
    guild[0].ask("getjob", "from", "q")
    guild.down.add(0)
    guild.lost.add(m.QUEUED)
    for number in (1, 2):
        engine = guild[number].engine
        postpone(engine, guild[number].jobs()[0], guild.now + 10)
    guild.run(510)
    assert sorted(guild.queued("q")[1:]) == [0, 1]
    guild.down.add(guild.queued("q").index(1))
    guild.run(60_000)  # It yields for a limited time only.
    assert guild.queued("q")[1:] == [1, 1]


@pytest.mark.parametrize("first", [1, 2])
def test_a_holder_that_is_about_to_warn_yields_to_a_holder_that_has_just_warned(first: int) -> None:
    """The second warning arrives when both are committed: the first holder may win and then ignores it."""
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 60)
    guild[0].ask("getjob", "from", "q")
    guild.down.add(0)
    guild.lost.add(m.QUEUED)
    for number, wait_ms in ((first, 10), (3 - first, 11)):
        postpone(guild[number].engine, guild[number].jobs()[0], guild.now + wait_ms)
    guild.run(520)
    assert guild[first].ask("qlen", "q") == 1 and guild[3 - first].ask("qlen", "q") == 0
    guild.down.add(first)
    guild.run(60_000)  # It yields for a limited time only.
    assert guild[3 - first].ask("qlen", "q") == 1


def test_a_warning_does_not_bring_a_later_timer_forward() -> None:
    guild = NodeCluster(3)
    guild[0].ask("addjob", "q", "body", 1000, "retry", 60)
    guild[0].ask("getjob", "from", "q")
    guild.down.add(0)
    [job] = guild[2].jobs()
    before = job.wake
    postpone(guild[1].engine, guild[1].jobs()[0], guild.now + 10)
    guild.run(100)
    assert guild.sent[m.WILLQUEUE] == 2 and job.wake == before
