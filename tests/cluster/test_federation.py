"""Jobs move to the nodes whose consumers wait for them."""

import pytest

from penstock.cluster import messages as m
from penstock.cluster.federation import WANTS_BYTES_MAX, WISHES_BYTES_MAX
from penstock.core.job import Draft
from penstock.core.policy import DISQUE, FIFO
from penstock.dialects.disque_scans import QueueScan, parse_query

from .cluster_nodes import Node, NodeCluster


def acked(node: Node, taken: list) -> None:
    for _, id, _ in taken:
        node.ask("ackjob", id)


def test_a_job_reaches_a_waiting_consumer_at_once_even_on_an_idle_queue() -> None:
    guild = NodeCluster(3)
    client = guild[1].connect()
    assert client.ask("getjob", "from", "q") is None
    guild.run(100_000)
    asked = guild.sent[m.NEEDJOBS]
    assert asked <= 2 * 10
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert client.answer_so_far() == [[b"q", id, b"body"]]


def test_an_ack_where_a_job_was_imported_reaches_its_origin() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 3)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    guild.run(2_000)
    assert guild[1].ask("ackjob", id) == 1
    guild.run(10_000)
    assert guild.queued("q") == [0, 0]
    assert all(not node.jobs() and not node.cluster.acks.by_id for node in guild.nodes)


def test_a_job_that_was_lost_in_transit_comes_back() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 3)
    guild.lost.add(m.YOURJOBS)
    assert guild[1].ask("getjob", "nohang", "from", "q") is None
    assert guild.queued("q") == [0, 0]
    guild.lost.clear()
    guild.run(5_000)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]


def test_a_delivery_is_announced_to_the_giver_only_if_the_job_was_given_long_ago() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 10)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert guild.sent[m.WORKING] == 0
    # The retry time at the giver began when the job was given. If that was long ago, the delivery is announced.
    guild.run(5_000)
    assert guild[1].ask("nack", id) == 1
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    guild.run(8_000)
    assert guild.queued("q") == [0, 0]


def test_an_imported_job_that_exists_as_a_copy_gets_the_counters_of_the_sender() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 2, "retry", 3)
    guild[0].ask("getjob", "from", "q")
    guild.lost.add(m.QUEUED)
    guild[0].ask("nack", id)
    assert guild[1].ask("getjob", "withcounters", "from", "q") == [
        [b"q", id, b"body", b"nacks", 1, b"additional-deliveries", 0]
    ]


def test_a_steady_stream_of_jobs_needs_few_requests() -> None:
    guild = NodeCluster(2)
    ids = [guild[0].ask("addjob", "q", number, 1000, "replicate", 1) for number in range(300)]
    got = []
    while len(got) < 300:
        taken = guild[1].ask("getjob", "from", "q")
        assert taken is not None
        acked(guild[1], taken)
        got += [id for _, id, _ in taken]
        guild.now += 1
    assert sorted(got) == sorted(ids)
    assert guild.sent[m.NEEDJOBS] < 30
    assert guild[1].cluster.federation.imported == 300


def test_jobs_do_not_move_back_and_forth() -> None:
    guild = NodeCluster(2)
    for number in range(20):
        guild[0].ask("addjob", "q", number, 1000, "replicate", 1)
    guild[1].ask("getjob", "from", "q")
    given = guild[1].cluster.federation.exported
    guild[0].ask("getjob", "nohang", "count", 20, "from", "q")
    guild[0].ask("getjob", "nohang", "from", "q")
    assert guild[1].cluster.federation.exported == given == 0


def test_a_job_does_not_move_for_a_single_poll_at_another_node() -> None:
    guild = NodeCluster(2)
    assert guild[1].ask("getjob", "nohang", "from", "q") is None
    guild.run(100)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert guild.queued("q") == [1, 0]


def test_a_client_that_polls_repeatedly_gets_a_job() -> None:
    guild = NodeCluster(2)
    for _ in range(15):
        assert guild[1].ask("getjob", "nohang", "from", "q") is None
        guild.run(100)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert guild[1].ask("getjob", "nohang", "from", "q") == [[b"q", id, b"body"]]


def test_a_job_that_moved_to_a_node_without_consumers_reaches_a_waiting_one() -> None:
    guild = NodeCluster(2)
    client = guild[1].connect()
    assert client.ask("getjob", "from", "q") is None
    guild.run(4_000)
    own = guild[1].ask("addjob", "q", "own", 1000, "replicate", 1)
    assert client.answer_so_far() == [[b"q", own, b"own"]]
    guild.run(1_000)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert guild[0].ask("getjob", "from", "q") == [[b"q", id, b"body"]]


def test_a_node_that_imported_jobs_gives_its_own_to_a_waiting_consumer() -> None:
    guild = NodeCluster(2)
    acked(guild[0], [[b"q", guild[1].ask("addjob", "q", "first", 1000, "replicate", 1), b""]])
    guild[1].ask("addjob", "q", "second", 1000, "replicate", 1)
    acked(guild[0], guild[0].ask("getjob", "from", "q"))
    client = guild[1].connect()
    assert client.ask("getjob", "from", "q") is None
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert client.answer_so_far() == [[b"q", id, b"body"]]


def test_a_queue_that_is_paused_for_takes_gives_no_jobs_to_other_nodes() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    guild[0].ask("pause", "q", "out")
    client = guild[1].connect()
    assert client.ask("getjob", "timeout", 5000, "from", "q") is None
    guild.run(2_000)
    assert client.answer_so_far() is None
    guild[0].ask("pause", "q", "none")
    guild.run(3_100)
    assert client.answer_so_far() is not None


def test_jobs_of_strict_tubes_do_not_move() -> None:
    guild = NodeCluster(2)
    tube = guild[0].engine.create_tube(b"strict", FIFO, guild.now)
    guild[0].engine.put(tube, Draft(b"body"), guild.now)
    client = guild[1].connect()
    assert client.ask("getjob", "timeout", 1000, "from", "strict") is None
    assert len(guild[0].jobs()) == 1 and not guild[1].jobs()
    assert "lives on one node; REPLICATE must be 1" in guild[0].ask("addjob", "strict", "body", 0, "replicate", 2)


def test_the_statistics_of_a_queue_show_the_sources_of_its_jobs() -> None:
    guild = NodeCluster(2)
    for number in range(10):
        guild[0].ask("addjob", "q", number, 1000, "replicate", 1)
    guild[1].ask("getjob", "from", "q")
    told = guild[1].ask("qstat", "q")
    told = dict(zip(told[::2], told[1::2], strict=True))
    assert told[b"import-from"] == [guild[0].id] and told[b"import-rate"] > 0


def test_a_scan_of_queues_filters_by_import_rate() -> None:
    guild = NodeCluster(2)
    here, client = guild[1], guild[1].client

    def found(rate: int) -> list:
        query = parse_query([b"qscan", b"importrate", b"%d" % rate], jobs=False)
        here.context.run_sliced(client, QueueScan(here.engine, here.disque, query), guild.now)
        return sorted(client.answer_so_far()[1])

    here.ask("addjob", "here", "body", 1000, "replicate", 1)
    for _ in range(10):
        guild[0].ask("addjob", "there", "body", 1000, "replicate", 1)
    for _ in range(10):
        assert here.ask("getjob", "from", "there") is not None
        guild.run(100)
    rate = dict(zip(*[iter(here.ask("qstat", "there"))] * 2, strict=True))[b"import-rate"]
    assert rate >= 5
    assert [found(least) for least in (0, 1, rate, rate + 1)] == [[b"here", b"there"], [b"there"], [b"there"], []]
    guild.run(10_000)
    assert (found(0), found(1)) == ([b"here", b"there"], [])


def test_a_job_that_cannot_be_imported_is_queued_by_its_sender_at_once() -> None:
    guild = NodeCluster(2)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    asked = m.QueueMessage(m.NEEDJOBS, b"q", 1, 1000)
    guild[0].cluster.receive(guild[1].id, asked, guild.now)
    guild[1].ask("pause", "q", "in")
    assert guild.queued("q") == [1, 0]
    assert guild[0].ask("getjob", "from", "q") == [[b"q", id, b"body"]]


def test_a_native_take_asks_other_nodes_for_jobs() -> None:
    guild = NodeCluster(2)
    guild[1].engine.create_tube(b"q", DISQUE, guild.now)
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert guild[1].ask("take", "q") == []
    assert guild.queued("q") == [0, 1]
    assert guild[1].ask("take", "q")[0]["id"] == id
    client = guild[1].connect()
    assert client.ask("take", "q", "timeout", "60s") is None
    late = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    assert client.answer_so_far()[0]["id"] == late


def test_demands_for_unused_names_do_not_fill_the_memory() -> None:
    guild = NodeCluster(2)
    waiting = guild[0].connect()
    assert waiting.ask("getjob", "from", "real") is None
    asking, asked = guild[0].cluster.federation, guild[1].cluster.federation
    for number in range(2 * WANTS_BYTES_MAX // 60_000):
        guild[0].ask("getjob", "nohang", "from", b"%d" % number + 60_000 * b"x")
    assert asking.wants_bytes <= WANTS_BYTES_MAX
    assert sum(len(name) + 500 for name in asking.local_demands) - asking.wants_bytes in (0, 504)
    assert asked.wishes_bytes == sum(len(name) + 500 for name in asked.peer_demands)
    for number in range(2 * WISHES_BYTES_MAX // 60_000):
        asked.receive_needjobs(
            guild[0].id, m.QueueMessage(m.NEEDJOBS, b"y%d" % number + 60_000 * b"x", 1, 500), guild.now
        )
    assert asked.wishes_bytes < WISHES_BYTES_MAX + 65_536
    # The demand of a client that waits for an existing queue is kept; the others are dropped later.
    guild.run(70_000)
    assert list(asking.local_demands) == [b"real"] and asking.wants_bytes in (0, 504)
    assert asked.wishes_bytes == sum(len(name) + 500 for name in asked.peer_demands) <= 504
    id = guild[1].ask("addjob", "real", "body", 1000, "replicate", 1)
    assert waiting.answer_so_far() == [[b"real", id, b"body"]]


@pytest.mark.parametrize("words", [["getjob", "from", "high", "low"], ["take", "high", "and", "low"]])
def test_a_queue_that_is_named_first_is_served_from_other_nodes_although_a_later_one_has_jobs(words: list[str]) -> None:
    """20 jobs of `high` are on node 1. A consumer at node 0 takes a job each millisecond, and `low` is never empty."""
    guild = NodeCluster(3)
    for name in ("high", "low"):
        guild[0].engine.create_tube(name.encode(), DISQUE, guild.now)
    high = {guild[1].ask("addjob", "high", "body", 1000, "replicate", 1, "retry", 600) for _ in range(20)}
    for _ in range(2_100):
        guild[0].ask("addjob", "low", "body", 1000, "replicate", 1, "retry", 600)
    began = guild.now
    while high and guild.now < began + 2_000:
        [taken] = guild[0].ask(*words)
        id = taken["id"] if words[0] == "take" else taken[1]
        guild[0].ask("ackjob", id)
        high.discard(id)
        guild.run(1)
    assert not high


def test_queues_behind_the_one_that_serves_are_not_asked_for() -> None:
    guild = NodeCluster(2)
    guild[0].ask("addjob", "high", "body", 1000, "replicate", 1)
    guild.sent.clear()
    guild[0].ask("getjob", "from", "high", "low")
    assert m.NEEDJOBS not in guild.sent


def test_jobs_of_a_leaving_node_are_passed_on_to_waiting_consumers() -> None:
    """A client has asked node 1 once. No client waits there when node 0 leaves, and three consumers wait at node 2."""
    guild = NodeCluster(3)
    once = guild[1].connect()
    once.ask("getjob", "timeout", 100, "from", "q")
    guild.run(200)
    consumers = [guild[2].connect() for _ in range(3)]
    for consumer in consumers:
        consumer.ask("getjob", "from", "q")
    guild[0].context.leaving = True
    guild[0].cluster.set_leaving(True, guild.now)
    guild.settle()
    added = taken = 0
    backlogs = []
    for step in range(1_000):
        options = ["retry", 0] if step % 3 == 0 else ["retry", 600]
        guild[0].connect().ask("addjob", "q", step, 0, "replicate", 1, *options)
        added += 1
        guild.run(10)
        for consumer in consumers:
            got = consumer.answer_so_far()
            while got is not None:
                taken += len(got)
                acked(guild[2], got)
                got = consumer.ask("getjob", "from", "q")
        backlogs.append(guild[1].ask("qlen", "q"))
    assert max(backlogs[500:]) <= 10, backlogs[::50]
    assert taken >= added - 20
