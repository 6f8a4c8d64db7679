"""At-most-once jobs are on one node at any time, and are not lost when they are handed over."""

import pytest

from penstock.cluster import messages as m
from penstock.cluster.peers import Peer
from penstock.wire.headers import encode_headers
from tests.spilled_bodies import spill

from .cluster_nodes import NodeCluster


def put_once(guild: NodeCluster, number: int = 0, *options: object) -> bytes:
    return guild[number].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", 0, *options)


def everywhere(guild: NodeCluster) -> int:
    return sum(len(node.jobs()) for node in guild.nodes)


def test_an_at_most_once_job_is_handed_over_to_a_node_that_asks_for_it() -> None:
    guild = NodeCluster(2)
    id = put_once(guild)
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert not guild[0].jobs() and not guild[0].cluster.handovers.under_way
    assert guild.sent[m.TAKENOVER] == 1


@pytest.mark.parametrize("retry", [0, 1])
def test_a_job_arrives_on_another_node_with_its_headers(retry: int) -> None:
    guild = NodeCluster(2)
    headers = encode_headers([("trace", b"\xff"), ("tenant", b"ann")])
    id = guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", retry)
    guild[0].jobs()[0].ensure_extra().headers = headers
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert [job.headers() for job in guild[1].jobs()] == [headers]


@pytest.mark.parametrize("lost", [m.YOURJOBS, m.TAKENOVER])
def test_a_lost_message_of_a_handover_neither_loses_nor_duplicates_the_job(lost: int) -> None:
    guild = NodeCluster(2)
    id = put_once(guild)
    guild.lost.add(lost)
    client = guild[1].connect()
    client.ask("getjob", "from", "q")
    guild.run(3_000)
    guild.lost.clear()
    guild.run(10_000)
    assert client.answer_so_far() in ([[b"q", id, b"body"]], None)
    assert guild[0].ask("getjob", "nohang", "from", "q") is None
    assert guild[1].cluster.federation.imported == 1
    assert everywhere(guild) == 1 and not guild[0].jobs()


@pytest.mark.parametrize("dies", [0, 1])
def test_a_restart_of_either_side_of_a_handover_neither_loses_nor_duplicates_the_job(dies: int) -> None:
    guild = NodeCluster(2, disks=True)
    id = put_once(guild)
    guild.lost.add(m.TAKENOVER)
    assert guild[1].ask("getjob", "nohang", "from", "q") in ([[b"q", id, b"body"]], None)
    guild.restart(dies)
    guild.lost.clear()
    guild.run(10_000)
    assert not guild[0].jobs() and len(guild[1].jobs()) == 1
    got = [guild[number].ask("getjob", "nohang", "from", "q") for number in (1, 0)]
    assert got == [[[b"q", id, b"body"]], None]


def test_a_receiver_that_lost_its_jobs_does_not_take_a_handover_again() -> None:
    guild = NodeCluster(2, disks=True)
    id = put_once(guild)
    guild.lost.add(m.TAKENOVER)
    client = guild[1].connect()
    client.ask("getjob", "from", "q")
    assert [job.deliveries for job in guild[1].jobs()] == [1]
    guild.restart(1, forgets=True)
    guild.lost.clear()
    guild.run(20_000)
    assert everywhere(guild) == 0 and guild[0].cluster.handovers.lost == 1
    assert id.endswith(b"0")


def greeting_of(number: int, incarnation: bytes) -> m.Greeting:
    return m.Greeting(m.PONG, f"10.0.0.{number + 1}", 7711, 17711, 0, incarnation, [])


@pytest.mark.parametrize("late", [1, 3])
def test_a_late_greeting_of_a_killed_process_does_not_redirect_a_job_to_it(late: int) -> None:
    """Our link leads to the new process. The job must not be addressed to the process that was killed."""
    guild = NodeCluster(2)
    killed, giver = guild[1].memory, guild[0]
    id = put_once(guild)
    guild.restart(1, forgets=True)
    for _ in range(late):
        giver.cluster.receive(guild[1].id, greeting_of(1, killed), guild.now)
    assert not giver.members.has_greeted(guild[1].id) and not giver.cluster.state.targets([], 1)
    client = guild[1].connect()
    answer = client.ask("getjob", "timeout", 5_000, "from", "q")
    guild.run(1_000)
    assert (answer or client.answer_so_far()) == [[b"q", id, b"body"]]
    guild.run(10_000)
    assert giver.cluster.handovers.lost == 0 and giver.cluster.handovers.accepted == 1
    assert giver.members.incarnation_of(guild[1].id) == guild[1].memory != killed


def test_late_greetings_of_a_killed_process_drop_a_link_once() -> None:
    guild = NodeCluster(2)
    killed, members = guild[1].memory, guild[0].members
    guild.restart(1, forgets=True)
    for _ in range(3):
        guild[0].cluster.receive(guild[1].id, greeting_of(1, killed), guild.now)
    assert members.take_stale() == [guild[1].id]
    guild[0].cluster.link_down(guild[1].id, guild.now)
    # Without a link, a greeting has no effect on the incarnation.
    guild[0].cluster.receive(guild[1].id, greeting_of(1, killed), guild.now)
    guild[0].cluster.link_up(guild[1].id, guild[1].id, guild[1].memory, guild.now)
    guild.run(20_000)
    assert members.has_greeted(guild[1].id) and not members.take_stale()


def test_a_greeting_of_the_successor_drops_a_link_to_a_killed_process() -> None:
    guild = NodeCluster(2)
    put_once(guild)
    guild[0].cluster.receive(guild[1].id, greeting_of(1, b"of its successor"), guild.now)
    assert guild[0].members.take_stale() == [guild[1].id]
    assert not guild[0].cluster.state.can_take(guild[1].id) and not guild[0].members.incarnation_of(guild[1].id)


def test_a_node_that_lost_its_jobs_while_running_is_given_jobs_under_its_new_incarnation() -> None:
    guild = NodeCluster(3)
    id = put_once(guild)
    guild[1].cluster.set_incarnation(b"a new incarnation"[:16], guild.now)
    guild.settle()
    assert [guild[number].members.incarnation_of(guild[1].id) for number in (0, 2)] == 2 * [b"a new incarnation"[:16]]
    assert guild[1].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert guild[0].cluster.handovers.lost == 0


def test_a_job_is_handed_over_only_to_a_node_whose_incarnation_is_confirmed() -> None:
    guild = NodeCluster(2)
    id = put_once(guild)
    guild.lost |= {m.PING, m.PONG}
    guild.restart(1, forgets=True)
    client = guild[1].connect()
    client.ask("getjob", "from", "q")
    assert not guild[0].cluster.handovers.under_way and guild.queued("q") == [1, 0]
    guild.lost.clear()
    guild[1].members.set_leaving(False, guild.now)
    guild.settle()
    assert client.answer_so_far() == [[b"q", id, b"body"]]
    assert guild[0].cluster.handovers.lost == 0 and not guild[0].jobs()


def test_a_giver_that_lost_its_jobs_numbers_handovers_anew() -> None:
    guild = NodeCluster(2)
    put_once(guild)
    assert guild[1].ask("getjob", "from", "q")
    guild.restart(0, forgets=True)
    id = put_once(guild)
    guild.run(40_000)
    assert guild[1].ask("getjob", "from", "q")[0][1] == id


def test_a_job_can_be_handed_over_and_back() -> None:
    guild = NodeCluster(2)
    id = put_once(guild)
    guild[1].cluster.federation.want(b"q", 1_000, guild.now)
    guild.settle()
    assert guild.queued("q") == [0, 1]
    guild.run(6_000)
    assert guild[0].ask("getjob", "from", "q") == [[b"q", id, b"body"]]
    assert guild[0].ask("ackjob", id) == 1
    assert everywhere(guild) == 0


def test_a_repeated_handover_is_taken_once() -> None:
    guild = NodeCluster(2)
    put_once(guild)
    heard: list = []
    receive = guild[1].cluster.receive

    def overhear(sender: bytes, message: m.Message, now: int) -> None:
        heard.append((sender, message))
        receive(sender, message, now)

    arrive = guild._arrive
    guild._arrive = lambda sender, receiver, letter: (  # type: ignore[method-assign]
        heard.append((sender.id, letter)),
        arrive(sender, receiver, letter),
    )
    assert guild[1].ask("getjob", "from", "q")
    for sender, message in list(heard):
        if message.kind == m.YOURJOBS:
            for _ in range(3):
                overhear(sender, message, guild.now)
    guild.settle()
    assert len(guild[1].jobs()) == 1 and guild[1].ask("getjob", "nohang", "from", "q") is None


def test_a_handover_keeps_the_delay_of_a_job() -> None:
    guild = NodeCluster(2)
    guild[0].cluster.set_leaving(True, guild.now)
    guild[0].context.leaving = True
    guild.settle()
    put_once(guild, 0, "delay", 5)
    assert not guild[0].jobs()
    guild.run(4_900)
    assert guild[1].ask("qlen", "q") == 0
    guild.run(200)
    assert guild[1].ask("qlen", "q") == 1


@pytest.mark.parametrize("why", ["leaving", "paused"])
def test_a_refused_handover_returns_the_job_to_its_queue(why: str) -> None:
    guild = NodeCluster(2)
    id = put_once(guild)
    guild.lost.add(m.YOURJOBS)
    guild[1].ask("getjob", "nohang", "from", "q")
    if why == "leaving":
        guild[1].cluster.set_leaving(True, guild.now)
    else:
        guild[1].ask("pause", "q", "in")
    guild.lost.clear()
    guild.run(2_000)
    assert guild.queued("q") == [1, 0] and not guild[0].cluster.handovers.under_way
    assert guild[0].ask("getjob", "from", "q") == [[b"q", id, b"body"]]


@pytest.mark.parametrize("retry", [0, 5])
def test_a_job_whose_body_cannot_be_read_is_removed_from_its_handover(retry: int) -> None:
    guild = NodeCluster(2, disks=True)
    guild.lost.add(m.YOURJOBS)
    for _ in range(2):
        guild[0].ask("addjob", "q", "body", 1000, "replicate", 1, "retry", retry)
    guild[0].cluster.set_leaving(True, guild.now)
    guild.run(1_000)
    handovers = guild[0].cluster.handovers
    assert len(handovers.by_job) == 2
    damaged = guild[0].jobs()[0]
    spill(guild[0].engine, damaged, 1, 1 << 40)
    guild.lost.clear()
    guild.run(20_000)
    assert not handovers.by_job and not handovers.under_way
    # The receiver may have delivered an at-most-once job.
    assert guild[0].jobs() == ([damaged] if retry else []) and handovers.lost == (0 if retry else 1)
    assert guild.queued("q")[1] == 1


def test_a_job_that_cannot_be_handed_over_is_not_counted() -> None:
    guild = NodeCluster(2, disks=True)
    guild[0].ask("addjob", "q", "body", 1000, "replicate", 1)
    spill(guild[0].engine, guild[0].jobs()[0], 1, 1 << 40)
    assert guild[1].ask("getjob", "nohang", "from", "q") is None
    assert guild[0].cluster.federation.exported == 0 and guild[0].jobs()[0].copy() is None


def taken_notes(guild: NodeCluster) -> int:
    return sum(note.startswith(b"took ") for note in guild[0].engine.notes)


def test_a_handover_to_a_dead_node_does_not_make_other_receivers_keep_more_numbers() -> None:
    guild = NodeCluster(3)
    put_once(guild)
    guild.cut.add((0, 1))
    guild[1].ask("getjob", "nohang", "from", "q")
    assert len(guild[0].cluster.handovers.under_way) == 1
    guild.down.add(1)
    client = guild[2].connect()
    noted: list[int] = []
    for _ in range(20):
        id = put_once(guild)
        got = client.ask("getjob", "timeout", 5_000, "from", "q")
        guild.run(100)
        assert got or client.answer_so_far() == [[b"q", id, b"body"]]
        noted += [len(value) for key, value in guild[2].engine.notes.items() if key.startswith(b"took ")]
    assert len(noted) == 20 and max(noted) <= len(b"21 21")
    assert len(guild[0].cluster.handovers.under_way) == 1


def test_numbers_of_handovers_from_former_members_are_dropped() -> None:
    guild = NodeCluster(2)
    node = guild[0]
    for number in range(300):
        if number == 250:
            guild.now += 2 * 3_600_000
        giver = b"%040x" % (number + 1)
        node.members.peers[giver] = Peer(giver, "10.1.1.1", 7711, 17711)
        message = m.JobsMessage(m.YOURJOBS, [m.JobImage(b"D-%08x-%024d-0000" % (number, number), b"q", b"body")])
        message.number, message.floor, message.sender_incarnation, message.receiver_incarnation = (
            1,
            1,
            16 * b"s",
            node.members.incarnation,
        )
        message.jobs[0].ttl_ms = 60_000
        node.cluster.receive(giver, message, guild.now)
        node.mail.take()
        node.members.forget(giver, guild.now)
    assert taken_notes(guild) == 150
    node.cluster.reset(node.id, guild.now)
    assert taken_notes(guild) == 0
