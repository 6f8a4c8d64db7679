"""The commands about connections and the server: CONFIG, CLIENT, MONITOR, SLOWLOG, LATENCY, DEBUG, CLUSTER, INFO …"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ports import free_port

from .. import serving
from ..serving import Refusal, Server, Wire, bulks, command, configured, decoded, pairs, refusals, wait_for

SYNTAX = "ERR syntax error"
WRONG_CLUSTER = "ERR Wrong CLUSTER subcommand or number of arguments"
WRONG_CLIENT = "ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"
WRONG_CONFIG = "ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"
WRONG_SLOWLOG = "ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
WRONG_COMMAND = "ERR Unknown subcommand or wrong number of arguments."
BAD_NAME = "ERR Client names cannot contain spaces, newlines or special characters."
BAD_TIMEOUT = "ERR timeout is not an integer or out of range"


def unknown_debug(word: str) -> str:
    return f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{word}'"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("NOSUCH", "ERR unknown command 'NOSUCH'"),
        ("nosuch a b", "ERR unknown command 'nosuch'"),
        ("SELECT 0", "ERR unknown command 'SELECT'"),
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("TIME x", "ERR wrong number of arguments for 'time' command"),
        ("MONITOR x", "ERR wrong number of arguments for 'monitor' command"),
        ("BGREWRITEAOF x", "ERR wrong number of arguments for 'bgrewriteaof' command"),
        ("CONFIG", "ERR wrong number of arguments for 'config' command"),
        ("AUTH", "ERR wrong number of arguments for 'auth' command"),
        ("AUTH x", "ERR Client sent AUTH, but no password is set"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "NOPROTO unsupported protocol version"),
        ("HELLO 3 NOSUCH", "ERR Syntax error in HELLO option 'NOSUCH'"),
        ("LOADJOB x", "ERR LOADJOB is a special command only processed from AOF"),
        ("SHUTDOWN x", SYNTAX),
        ("SHUTDOWN REWRITE-AOF x", SYNTAX),
        ("INFO a b", SYNTAX),
        ("COMMAND nosuch", WRONG_COMMAND),
        ("COMMAND COUNT x", WRONG_COMMAND),
        ("COMMAND INFO" + " ping" * 1_001, "ERR COMMAND describes up to 1000 commands at a time"),
        ("COMMAND DOCS" + " ping" * 1_001, "ERR COMMAND describes up to 1000 commands at a time"),
        ("CONFIG nosuch", WRONG_CONFIG),
        ("CONFIG get", "ERR Wrong number of arguments for CONFIG get"),
        ("CONFIG GET a b", "ERR Wrong number of arguments for CONFIG GET"),
        ("CONFIG SET a", "ERR Wrong number of arguments for CONFIG SET"),
        ("CONFIG RESETSTAT x", "ERR Wrong number of arguments for CONFIG RESETSTAT"),
        ("CONFIG rewrite x", "ERR Wrong number of arguments for CONFIG rewrite"),
        ("CONFIG REWRITE", "ERR The server is running without a config file"),
        ("CONFIG SET nosuch 1", "ERR Unsupported CONFIG parameter: nosuch"),
        ("CONFIG SET port 1", "ERR Unsupported CONFIG parameter: port"),
        ("CONFIG SET dir elsewhere", "ERR Unsupported CONFIG parameter: dir"),
        ("CONFIG SET hz x", "ERR Invalid argument 'x' for CONFIG SET 'hz'"),
        ("CONFIG SET appendfsync sometimes", "ERR Invalid argument 'sometimes' for CONFIG SET 'appendfsync'"),
        ("CONFIG SET maxmemory -1", "ERR Invalid argument '-1' for CONFIG SET 'maxmemory'"),
        ("CONFIG SET maxclients 0", "ERR Invalid argument '0' for CONFIG SET 'maxclients'"),
        ("CLIENT nosuch", WRONG_CLIENT),
        ("CLIENT SETNAME", WRONG_CLIENT),
        ("CLIENT SETNAME a b", WRONG_CLIENT),
        ("CLIENT KILL 127.0.0.1:1", "ERR No such client"),
        ("CLIENT KILL", SYNTAX),
        ("CLIENT KILL NOSUCH x", SYNTAX),
        ("CLIENT KILL ID", "ERR No such client"),
        ("CLIENT KILL ID 1 ADDR", SYNTAX),
        ("CLIENT KILL TYPE slave", "ERR Unknown client type 'slave'"),
        ("CLIENT KILL SKIPME perhaps", SYNTAX),
        ("CLIENT PAUSE", BAD_TIMEOUT),
        ("CLIENT PAUSE x", BAD_TIMEOUT),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT REPLY", SYNTAX),
        ("CLIENT REPLY MAYBE", SYNTAX),
        ("SLOWLOG nosuch", WRONG_SLOWLOG),
        ("SLOWLOG LEN x", WRONG_SLOWLOG),
        ("SLOWLOG GET 1 2", WRONG_SLOWLOG),
        ("SLOWLOG GET x", "ERR value is not an integer or out of range"),
        ("LATENCY nosuch", SYNTAX),
        ("LATENCY HISTORY", SYNTAX),
        ("LATENCY GRAPH nosuch", "ERR No samples available for event 'nosuch'"),
        ("CLUSTER nosuch", WRONG_CLUSTER),
        ("CLUSTER MYID x", WRONG_CLUSTER),
        ("CLUSTER MEET 127.0.0.1", WRONG_CLUSTER),
        ("CLUSTER MEET 127.0.0.1 x", "ERR Invalid TCP port specified: x"),
        ("CLUSTER MEET nosuch 7711", "ERR Invalid node address specified: nosuch:7711"),
        ("CLUSTER MEET 127.0.0.1 0", "ERR Invalid node address specified: 127.0.0.1:0"),
        ("CLUSTER MEET 127.0.0.1 55536", "ERR Invalid node address specified: 127.0.0.1:55536"),
        ("CLUSTER FORGET x", "ERR Invalid node identifier"),
        (f"CLUSTER FORGET {'0' * 40}", f"ERR Unknown node {'0' * 40}"),
        ("CLUSTER LEAVING perhaps", "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"),
        ("CLUSTER RESET NOSUCH", WRONG_CLUSTER),
        ("DEBUG nosuch", unknown_debug("nosuch")),
        ("DEBUG SLEEP", unknown_debug("SLEEP")),
        ("DEBUG flushall x", unknown_debug("flushall")),
        ("DEBUG SLEEP x", "ERR value is not a valid float"),
        ("DEBUG ERROR MYCODE", "MYCODE"),
    ],
)
def test_wrong_commands_are_refused_with_exact_errors(wire: Wire, words: str, refusal: str) -> None:
    assert wire.ask(*words.split()) == f"-{refusal}\r\n".encode()
    assert wire.ask("PING") == b"+PONG\r\n"


# ---- The connection --------------------------------------------------------------------------------------------------


def test_ping_and_time(wire: Wire) -> None:
    assert wire.ask("PING") == b"+PONG\r\n"
    assert wire.ask("ping", b"\r\n\0") == b"$3\r\n\r\n\0\r\n"
    answer = wire.ask("TIME")
    assert re.fullmatch(rb"\*2\r\n\$10\r\n\d{10}\r\n\$\d\r\n\d{1,6}\r\n", answer)
    assert abs(int(decoded(answer)[0]) - time.time()) < 5


def test_hello_alone_is_disques_and_names_an_address_that_can_be_connected_to(server: Server, wire: Wire) -> None:
    wire.call("DEBUG", "FLUSHALL")  # Queues that other tests have paused would be shown.
    node = wire.call("CLUSTER", "MYID")
    assert re.fullmatch(rb"[0-9a-f]{40}", node)
    assert wire.ask("HELLO") == b"*3\r\n:1\r\n" + bulks(node)[4:] + bulks(node, "127.0.0.1", server.port, 1)


def test_hello_with_a_version_replies_as_redis_does(wire: Wire) -> None:
    id = wire.call("CLIENT", "ID")
    told = wire.call("HELLO", 3)
    assert told == {
        b"server": b"penstock",
        b"version": told[b"version"],
        b"proto": 3,
        b"id": id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [],
    }
    assert wire.ask("GETJOB", "NOHANG", "FROM", "nothing-here") == b"_\r\n"
    assert wire.ask("SHOW", "D-deadbeef-AAAAAAAAAAAAAAAAAAAAAAAA-05a1") == b"_\r\n"
    assert wire.ask("HELLO", 2, "SETNAME", "me")[:5] == b"*14\r\n"
    assert wire.ask("GETJOB", "NOHANG", "FROM", "nothing-here") == b"*-1\r\n"
    assert wire.call("CLIENT", "GETNAME") == b"me"


def test_quit_is_answered_and_closes(wire: Wire) -> None:
    wire.send_raw(command("PING") + command("Quit", "x") + command("PING"))
    assert [wire.read() for _ in range(3)] == [b"+PONG\r\n", b"+OK\r\n", b""]


def test_a_client_has_a_name_if_it_wants_one(wire: Wire) -> None:
    assert wire.ask("CLIENT", "GETNAME") == b"$-1\r\n"
    assert wire.ask("CLIENT", "SETNAME", "worker-1") == b"+OK\r\n"
    assert wire.ask("CLIENT", "GETNAME") == b"$8\r\nworker-1\r\n"
    for bad in ("a b", "a\nb", "\x00", "ä"):
        assert wire.ask("CLIENT", "SETNAME", bad) == f"-{BAD_NAME}\r\n".encode()
    assert wire.ask("CLIENT", "SETNAME", "") == b"+OK\r\n"
    assert wire.ask("CLIENT", "GETNAME") == b"$-1\r\n"


def lines_of_clients(wire: Wire) -> dict[str, dict[str, str]]:
    """Return the lines of CLIENT LIST by address."""
    lines = wire.call("CLIENT", "LIST").decode().splitlines()
    fields = [dict(field.split("=", 1) for field in line.split(" ")) for line in lines]
    return {each["addr"]: each for each in fields}


def test_a_client_cannot_forge_lines_of_client_list(wire: Wire, wires: Callable[[], Wire]) -> None:
    other = wires()
    for name in (b"x\nid=1 addr=9.9.9.9:1", b"x user=admin held=9", b"\x1b[2J\xff\r\x00"):
        assert other.ask(name)[:20] == b"-ERR unknown command"
        lines = wire.call("CLIENT", "LIST").decode("ascii").split("\n")
        assert all(re.fullmatch(r"id=\d+ addr=[^ ]+ fd=.* cmd=[!-~]+ user=default held=0 .*|", line) for line in lines)


def test_client_list_shows_all_clients_and_their_state(wire: Wire, wires: Callable[[], Wire]) -> None:
    waiting, watching, idle = wires(), wires(), wires()
    waiting.send("GETJOB", "FROM", "client-list")
    watching.call("MONITOR")
    idle.call("CLIENT", "SETNAME", "idle")
    idle.call("PING")
    wait_for(lambda: lines_of_clients(wire)[waiting.address]["flags"] == "b")
    told = lines_of_clients(wire)
    fields = "id addr fd name age idle flags qbuf qbuf-free obl oll omem events cmd"
    assert list(told[wire.address])[:14] == fields.split()
    assert [told[each.address]["flags"] for each in (wire, waiting, watching, idle)] == ["N", "b", "O", "N"]
    assert [told[each.address]["cmd"] for each in (wire, waiting, watching, idle)] == [
        "client",
        "getjob",
        "monitor",
        "ping",
    ]
    assert told[idle.address]["name"] == "idle"
    assert int(told[idle.address]["id"]) == idle.call("CLIENT", "ID")


def test_client_kill_by_address_and_by_filters(wire: Wire, wires: Callable[[], Wire]) -> None:
    one, two, three = wires(), wires(), wires()
    for each in (one, two, three):
        each.call("PING")
    assert wire.ask("CLIENT", "KILL", one.address) == b"+OK\r\n"
    assert one.read() == b""
    assert wire.ask("CLIENT", "KILL", "ID", two.call("CLIENT", "ID"), "ADDR", three.address) == b":0\r\n"
    assert wire.ask("CLIENT", "KILL", "id", two.call("CLIENT", "ID"), "type", "normal") == b":1\r\n"
    assert two.read() == b""
    assert wire.ask("CLIENT", "KILL", "ADDR", wire.address) == b":0\r\n"  # The caller is skipped.
    assert wire.ask("CLIENT", "KILL", "ADDR", three.address, "SKIPME", "no") == b":1\r\n"
    assert wire.ask("CLIENT", "KILL", "ADDR", wire.address, "SKIPME", "no") == b":1\r\n"
    assert wire.read() == b""


def test_a_job_is_not_lost_with_a_killed_client_that_waits(wire: Wire, wires: Callable[[], Wire], queue: bytes) -> None:
    waiting = wires()
    waiting.send("GETJOB", "FROM", queue)
    wait_for(lambda: wire.call("QSTAT", queue))
    assert wire.ask("CLIENT", "KILL", waiting.address) == b"+OK\r\n"
    id = wire.add(queue)
    assert wire.get(queue) == [id]


def test_client_reply_switches_replies_off_and_on(wire: Wire) -> None:
    wire.send_raw(command("CLIENT", "REPLY", "SKIP") + command("PING", "1") + command("PING", "2"))
    assert wire.read() == b"$1\r\n2\r\n"
    wire.send_raw(command("CLIENT", "REPLY", "OFF") + command("PING", "1") + command("NOSUCH"))
    wire.send_raw(command("CLIENT", "REPLY", "ON") + command("PING", "2"))
    assert [wire.read(), wire.read()] == [b"+OK\r\n", b"$1\r\n2\r\n"]


@pytest.mark.parametrize("word", ["SKIP", "OFF"])
def test_delayed_replies_are_switched_off_too(wire: Wire, queue: bytes, word: str) -> None:
    wire.send_raw(command("CLIENT", "REPLY", word) + command("GETJOB", "TIMEOUT", 10, "FROM", queue))
    wire.send_raw(command("CLIENT", "REPLY", "ON"))
    assert wire.read() == b"+OK\r\n"
    wire.send_raw(command("CLIENT", "REPLY", word) + command("CLUSTER", "RESET") + command("CLIENT", "REPLY", "ON"))
    assert wire.read() == b"+OK\r\n"
    assert wire.ask("PING") == b"+PONG\r\n"


def test_client_pause_delays_all_commands(wire: Wire, wires: Callable[[], Wire]) -> None:
    other = wires()
    began = time.monotonic()
    assert wire.ask("CLIENT", "PAUSE", 100) == b"+OK\r\n"
    other.send("PING")
    assert other.read() == b"+PONG\r\n"
    assert time.monotonic() - began >= 0.099


def test_setinfo_is_taken_and_shown(wire: Wire) -> None:
    assert wire.ask("CLIENT", "SETINFO", "LIB-NAME", "mine") == b"+OK\r\n"
    assert wire.ask("CLIENT", "SETINFO", "lib-ver", "1.0") == b"+OK\r\n"
    assert wire.ask("CLIENT", "SETINFO", "LIB-NOSUCH", "x")[:5] == b"-ERR "
    told = lines_of_clients(wire)[wire.address]
    assert (told["lib-name"], told["lib-ver"]) == ("mine", "1.0")


# ---- Watching --------------------------------------------------------------------------------------------------------


def test_monitor_shows_all_commands_without_passwords(wire: Wire, wires: Callable[[], Wire]) -> None:
    watching = wires()
    assert watching.ask("MONITOR") == b"+OK\r\n"
    wire.ask("AUTH", "s3cret")
    wire.ask("ADDJOB", "monitor", b'a"b\\c\n\0\xff', 0)
    wire.type("ping typed")
    wire.ask("nosuch")
    lines = [watching.read() for _ in range(3)]
    head = rb"\+\d{10}\.\d{6} \[" + wire.address.encode() + rb"\] "
    for line, said in zip(
        lines,
        [
            b'"AUTH" "(redacted)"',
            rb'"ADDJOB" "monitor" "a\"b\\c\n\x00\xff" "0"',
            b'"ping" "typed"',
        ],
        strict=True,
    ):
        assert re.fullmatch(head + re.escape(said) + b"\r\n", line), line
    watching.close()
    wire.call("PING")


def test_monitor_shows_no_more_of_a_command_than_the_slowlog(wire: Wire, wires: Callable[[], Wire]) -> None:
    watching = wires()
    assert watching.ask("MONITOR") == b"+OK\r\n"
    wire.ask("PING", b"\xff" * 1_000)
    assert watching.read().endswith(b'"PING" "' + rb"\xff" * 128 + b'... (872 more bytes)"\r\n')
    wire.ask("QSCAN", *["x"] * 99)
    assert watching.read().endswith(b'"QSCAN" ' + b'"x" ' * 30 + b'"... (69 more arguments)"\r\n')
    every = bytes(range(128))
    wire.ask("PING", every)
    # The shown words can be typed, and are the same bytes again.
    shown = watching.read().partition(b'"PING" ')[2].strip()
    assert wire.type("PING " + shown.decode()) == b"$128\r\n%s\r\n" % every
    watching.close()
    wire.call("PING")


def test_slowlog_keeps_slow_commands_newest_first(wire: Wire) -> None:
    with configured(wire, "slowlog-log-slower-than", -1):
        assert wire.ask("SLOWLOG", "RESET") == b"+OK\r\n"
        assert wire.ask("SLOWLOG", "GET") == b"*0\r\n"
        wire.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
        wire.ask("AUTH", "s3cret")
        wire.ask("CONFIG", "SET", "loglevel", "info", "requirepass", "s3cret")
        wire.ask("PING", "x" * 200)
        wire.ask("NACK", *(["D-deadbeef-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"] * 40))
        wire.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
        entries = wire.call("SLOWLOG", "GET", 10)
        nack, ping, config, auth, _ = (entry[3] for entry in entries)
        assert auth == [b"AUTH", b"(redacted)"]
        assert config == [b"CONFIG", b"SET", b"loglevel", b"info", b"requirepass", b"(redacted)"]
        assert ping == [b"PING", b"x" * 128 + b"... (72 more bytes)"]
        assert (len(nack), nack[-1]) == (32, b"... (10 more arguments)")
        assert [entry[0] for entry in entries] == list(range(entries[0][0], entries[0][0] - 5, -1))
        assert all(abs(entry[1] - time.time()) < 60 and entry[2] >= 0 for entry in entries)
        assert wire.ask("SLOWLOG", "LEN") == b":5\r\n"
        assert wire.call("SLOWLOG", "GET", 1) == entries[:1]
        assert wire.ask("SLOWLOG", "GET", 0) == b"*0\r\n"
        with configured(wire, "slowlog-max-len", 2):
            wire.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
            wire.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
            assert wire.ask("SLOWLOG", "LEN") == b":2\r\n"
        assert wire.ask("SLOWLOG", "RESET") == b"+OK\r\n"
        assert wire.ask("SLOWLOG", "LEN") == b":0\r\n"


def test_latency_remembers_spikes_by_event(wire: Wire) -> None:
    """The sleeps are so long that hardly anything else takes as long on a busy machine."""
    assert b"latency-monitor-threshold" in wire.call("LATENCY", "DOCTOR")
    with configured(wire, "latency-monitor-threshold", 80):
        wire.call("LATENCY", "RESET")
        assert b"No latency spike" in wire.call("LATENCY", "DOCTOR")
        wire.call("DEBUG", "SLEEP", 0.2)
        [[event, when, last, worst]] = wire.call("LATENCY", "LATEST")
        assert (event, abs(when - time.time()) < 5, 200 <= last <= worst) == (b"command", True, True)
        assert wire.call("LATENCY", "HISTORY", "command") == [[when, last]]
        assert wire.ask("LATENCY", "HISTORY", "nosuch") == b"*0\r\n"
        assert b"command - high %d ms" % last in wire.call("LATENCY", "GRAPH", "command")
        assert b"SLOWLOG" in wire.call("LATENCY", "DOCTOR")
        assert wire.ask("LATENCY", "RESET", "nosuch", "command", "command") == b":1\r\n"
        assert wire.ask("LATENCY", "LATEST") == b"*0\r\n"
        wire.call("DEBUG", "SLEEP", 0.08)
        _, _, last, worst = wire.call("LATENCY", "LATEST")[0]
        assert last == worst  # The samples before the reset are gone.
        assert wire.ask("LATENCY", "RESET") == b":1\r\n"
        assert wire.ask("LATENCY", "RESET") == b":0\r\n"


# ---- CONFIG ----------------------------------------------------------------------------------------------------------


def test_config_get_answers_names_and_values_that_match(wire: Wire) -> None:
    assert wire.ask("CONFIG", "GET", "maxclients") == bulks("maxclients", "10000")
    assert wire.ask("CONFIG", "GET", "MaxClient?") == bulks("maxclients", "10000")
    assert wire.ask("CONFIG", "GET", "nosuch") == b"*0\r\n"
    assert wire.call("CONFIG", "GET", "appendfs*") == [b"appendfsync", b"everysec"]
    everything = wire.call("CONFIG", "GET", "*")
    assert everything[0] == b"requirepass"
    assert {b"port", b"dir", b"maxmemory", b"bind", b"cluster-node-timeout"} <= set(everything[::2])


def test_config_set_holds_at_once(wire: Wire) -> None:
    with configured(wire, "maxmemory", "1mb"):
        assert wire.call("CONFIG", "GET", "maxmemory")[1] == b"1048576"
        assert wire.info("memory")["maxmemory"] == "1048576"
    with configured(wire, "slowlog-log-slower-than", -1):
        assert wire.call("CONFIG", "GET", "slowlog-log-slower-than")[1] == b"-1"
    with configured(wire, "loglevel", "warning"):
        assert wire.call("CONFIG", "GET", "loglevel")[1] == b"warning"


def test_maxmemory_refuses_only_commands_that_add_jobs(wire: Wire, queue: bytes) -> None:
    wire.call("DEBUG", "FLUSHALL")
    with configured(wire, "appendonly", "no"), configured(wire, "maxmemory", "1mb"):
        first = wire.add(queue, b"x" * 100_000)
        oom = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        wait_for(lambda: wire.ask("ADDJOB", queue, b"x" * 100_000, 0) == oom)
        assert 0.8e6 < int(wire.info("memory")["used_memory"]) <= 1 << 20
        assert wire.ask("ADDJOB", queue + b"2", b"x" * 100_000, 0) == oom
        assert wire.get(queue) == [first]
        assert wire.call("WORKING", first) == 300
        assert wire.call("ACKJOB", first) == 1
        wire.add(queue, b"x" * 100_000)


def test_no_more_clients_than_maxclients(server: Server, wire: Wire) -> None:
    rejected = int(wire.info("stats")["rejected_connections"])
    with configured(wire, "maxclients", 1):
        one_too_many = Wire(server.port)
        assert one_too_many.read() == b"-ERR max number of clients reached\r\n"
        assert one_too_many.read() == b""
        one_too_many.close()
        assert int(wire.info("stats")["rejected_connections"]) == rejected + 1
    again = Wire(server.port)
    assert again.ask("PING") == b"+PONG\r\n"
    again.close()


def test_clients_leave_enough_open_files_for_the_journal(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Disque, fewer clients are allowed if the system allows few files."""
    limited = ["sh", "-c", 'ulimit -n 120; exec "$@"', "sh"]
    monkeypatch.setattr(serving, "PENSTOCK", [*limited, *serving.PENSTOCK])
    server = start(is_forked=False)
    assert "too few open files: max_clients=56\n" in server.log()
    admin = server.connect()
    crowd = [server.connect() for _ in range(55)]
    assert crowd[-1].ask("PING") == b"+PONG\r\n"
    assert server.connect().read() == b"-ERR max number of clients reached\r\n"
    assert admin.ask("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    wait_for(lambda: admin.info()["aof_rewrite_in_progress"] == "0")
    assert admin.info()["aof_last_bgrewrite_status"] == "ok"
    refusal = b"-ERR The operating system is not able to handle the specified number of clients, try with 56\r\n"
    for name in ("maxclients", "max_clients", "MAXCLIENTS"):
        assert admin.ask("CONFIG", "SET", name, 57) == refusal
    assert admin.ask("CONFIG", "GET", "maxclients") == bulks("maxclients", "10000")
    assert admin.ask("CONFIG", "SET", "maxclients", 56) == b"+OK\r\n"
    for wire in crowd:
        wire.close()
    wait_for(lambda: admin.info()["connected_clients"] == "1")


def test_config_resetstat_counts_anew(wire: Wire) -> None:
    wire.call("QLEN", "q")
    assert wire.ask("CONFIG", "RESETSTAT") == b"+OK\r\n"
    told = wire.info("all")
    assert int(told["total_commands_processed"]) <= 2
    assert told["total_connections_received"] == "0"
    assert "cmdstat_qlen" not in told


def test_no_rate_is_below_nothing_when_counting_begins_anew(wire: Wire) -> None:
    def rate() -> int:
        return int(wire.info("stats")["instantaneous_ops_per_sec"])

    def is_high() -> bool:
        wire.send_raw(command("PING") * 5_000)
        assert all(wire.read() == b"+PONG\r\n" for _ in range(5_000))
        return rate() > 1_000

    wait_for(lambda: rate() > 0)
    # Several times, because samples expire soon.
    wait_for(is_high)
    # Wait until all samples were taken after the reset.
    wait_for(lambda: rate() < 1_000)
    assert wire.ask("CONFIG", "RESETSTAT") == b"+OK\r\n"
    seen: list[int] = []
    wait_for(lambda: seen.append(rate()) or len(seen) == 60)  # More than two full sets of samples.
    assert min(seen) >= 0


# ---- COMMAND ---------------------------------------------------------------------------------------------------------

DISQUE_COMMANDS = """
auth 2 rlF, ping -1 rF, info -1 rl, shutdown -1 arl, monitor 1 ar, debug -2 a, config -2 ar, cluster -2 ar,
client -2 ar, slowlog -2 r, time 1 rF, command 0 rl, latency -2 arl, hello 1 rF, addjob -4 wmF, getjob -2 wF,
ackjob -1 wF, fastack -1 wF, deljob -1 wF, show 2 rF, loadjob 2 w, bgrewriteaof 1 ar, qlen 2 rF, qpeek 3 r, qstat 2 rF,
qscan -1 r, jscan -1 r, enqueue -1 mwF, nack -1 mwF, dequeue -1 wF, working 2 wF, pause -3 rF
"""
FLAGS = {"w": "write", "r": "readonly", "m": "denyoom", "a": "admin", "l": "loading", "F": "fast"}
MORE_WORDS = {"auth": -2, "hello": -1}  # Ours also take a user and a version.


def test_command_lists_disques_commands(wire: Wire) -> None:
    rows = [row.split() for row in DISQUE_COMMANDS.split(",")]
    names = wire.call("COMMAND", "LIST")
    assert wire.ask("COMMAND", "COUNT") == b":%d\r\n" % len(names)
    assert {name.encode() for name, _, _ in rows} <= set(names)
    everything = {entry[0]: entry for entry in wire.call("COMMAND")}
    assert sorted(everything) == sorted(names)
    for name, arity, letters in rows:
        flags = "".join(f"+{word}\r\n" for letter, word in FLAGS.items() if letter in letters)
        expected = (
            f"*1\r\n*6\r\n${len(name)}\r\n{name}\r\n:{MORE_WORDS.get(name, int(arity))}\r\n"
            f"*{len(letters)}\r\n{flags}:0\r\n:0\r\n:0\r\n"
        )
        assert wire.ask("COMMAND", "INFO", name.upper()) == expected.encode()
        assert everything[name.encode()] == decoded(expected.encode())[0]


def test_command_info_of_no_command_is_null(wire: Wire) -> None:
    assert wire.ask("COMMAND", "INFO", "nosuch", "qlen")[:9] == b"*2\r\n$-1\r\n"
    assert wire.ask("COMMAND", "DOCS", "nosuch") == b"*0\r\n"
    assert wire.call("COMMAND", "DOCS", "QLEN")[0] == b"qlen"
    tube = pairs(wire.call("COMMAND", "DOCS", "TUBE")[1])
    assert pairs(pairs(tube[b"subcommands"])[b"tube|drop"])[b"summary"] == b"Delete a tube and its jobs."


# ---- INFO ------------------------------------------------------------------------------------------------------------

SECTIONS = {
    "Server": "disque_version disque_git_sha1 disque_git_dirty disque_build_id os arch_bits multiplexing_api "
    "gcc_version process_id run_id tcp_port uptime_in_seconds uptime_in_days hz executable config_file",
    "Clients": "connected_clients client_longest_output_list client_biggest_input_buf blocked_clients",
    "Memory": "used_memory used_memory_human used_memory_rss used_memory_peak used_memory_peak_human "
    "mem_fragmentation_ratio mem_allocator",
    "Jobs": "registered_jobs",
    "Queues": "registered_queues",
    "Persistence": "loading aof_enabled aof_state aof_rewrite_in_progress aof_rewrite_scheduled "
    "aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_last_write_status "
    "aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length aof_rewrite_buffer_length "
    "aof_pending_bio_fsync aof_delayed_fsync",
    "Stats": "total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes "
    "total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections latest_fork_usec",
    "CPU": "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children",
}


def test_the_latency_of_syncs_and_of_the_loop_is_shown_on_request(wire: Wire) -> None:
    wait_for(lambda: int(wire.info("latency")["event_loop_lag_count"]) > 0)
    told = wire.info("latency")
    assert float(told["event_loop_lag_p99_ms"]) >= float(told["event_loop_lag_p50_ms"]) >= 0
    assert "journal_sync_p99_ms" in told and "# Latency" in wire.call("INFO", "all").decode()


def test_info_has_disques_sections_and_fields_in_their_order(wire: Wire) -> None:
    parts = wire.call("INFO").decode().split("\r\n\r\n")
    assert [part.splitlines()[0] for part in parts] == [f"# {name}" for name in SECTIONS]
    for name, part in zip(SECTIONS, parts, strict=True):
        told = [line.partition(":")[0] for line in part.splitlines()[1:]]
        assert [field for field in told if field in SECTIONS[name].split()] == SECTIONS[name].split()
        assert wire.call("INFO", name.upper()).decode().splitlines()[0] == f"# {name}"
    assert wire.ask("INFO", "nosuch") == b"$0\r\n\r\n"
    on_request = wire.info("commandstats").keys() | wire.info("latency").keys()
    assert wire.info("default").keys() == wire.info("all").keys() - on_request


def test_info_all_adds_the_cost_of_each_command(wire: Wire) -> None:
    wire.call("CONFIG", "RESETSTAT")
    for _ in range(3):
        wire.call("QLEN", "q")
    told = wire.info("all")
    assert re.fullmatch(r"calls=3,usec=\d+,usec_per_call=\d+\.\d\d", told["cmdstat_qlen"])
    assert "cmdstat_qstat" not in told
    assert "cmdstat_qlen" not in wire.info("default")
    assert wire.info("commandstats")["cmdstat_qlen"] == told["cmdstat_qlen"]


def test_info_counts_jobs_queues_and_clients(wire: Wire, wires: Callable[[], Wire], queue: bytes) -> None:
    # Jobs that other tests have left may expire at this moment.
    wire.call("DEBUG", "FLUSHALL")
    before = wait_for(lambda: (told := wire.info())["connected_clients"] == "1" and told)
    ids = [wire.add(queue) for _ in range(3)]
    wires().call("PING")
    after = wire.info()
    assert int(after["registered_jobs"]) == int(before["registered_jobs"]) + 3
    assert int(after["registered_queues"]) == int(before["registered_queues"]) + 1
    assert int(after["connected_clients"]) == int(before["connected_clients"]) + 1
    wire.call("ACKJOB", *ids)
    assert wire.info()["registered_jobs"] == before["registered_jobs"]


def test_info_shows_the_fsync_mode(wire: Wire) -> None:
    told = wire.info("persistence")
    assert (told["aof_enabled"], told["aof_state"], told["loading"]) == ("1", "on", "0")
    assert told["journal_fsync"] == "everysec"
    assert int(told["aof_current_size"]) > 0


# ---- CLUSTER ---------------------------------------------------------------------------------------------------------


def test_cluster_of_one(server: Server, wire: Wire) -> None:
    wire.call("DEBUG", "FLUSHALL")  # Queues that other tests have paused would be shown.
    node = wire.call("CLUSTER", "MYID")
    address = b"127.0.0.1:%d@%d" % (server.port, server.bus_port)
    assert wire.call("CLUSTER", "NODES") == b"%s %s myself 0 0 connected\n" % (node, address)
    assert wire.call("CLUSTER", "INFO").startswith(
        b"cluster_state:ok\r\ncluster_known_nodes:1\r\ncluster_reachable_nodes:0\r\ncluster_size:1\r\n"
        b"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
    )
    assert wire.ask("CLUSTER", "SAVECONFIG") == b"+OK\r\n"
    assert wire.ask("CLUSTER", "FORGET", node) == b"-ERR I tried hard but I can't forget myself...\r\n"


@pytest.mark.parametrize("words", [["CLUSTER", "RESET"], ["CLUSTER", "RESET", "SOFT"], ["DEBUG", "FLUSHALL"]])
def test_a_reset_removes_jobs_and_queues_and_ends_all_waits(
    wire: Wire, wires: Callable[[], Wire], words: list[str]
) -> None:
    id = wire.add("reset")
    wire.add("reset")
    wire.get("reset")
    wire.add("reset", "", "DELAY", 60)
    wire.call("PAUSE", "paused", "all")
    waiting = wires()
    waiting.send("GETJOB", "FROM", "waited-for")
    wait_for(lambda: wire.call("QSTAT", "waited-for"))
    node = wire.call("CLUSTER", "MYID")
    assert wire.ask(*words) == b"+OK\r\n"
    assert waiting.read() == b"*-1\r\n"
    told = wire.info()
    assert (told["registered_jobs"], told["registered_queues"]) == ("0", "0")
    assert wire.state(id) is None
    assert wire.call("CLUSTER", "MYID") == node
    wire.add("reset")


def test_a_reset_keeps_the_queue_of_a_client_that_waits_again(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    wire.call("DEBUG", "FLUSHALL")
    waiting = wires()
    waiting.send_raw(command("GETJOB", "FROM", queue) * 3)
    wait_for(lambda: wire.call("QSTAT", queue))
    wire.add(b"another " + queue)
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    assert waiting.read() == b"*-1\r\n"
    assert wire.call("QSCAN", "BUSYLOOP") == [b"0", [queue]]
    id = wire.add(queue)
    assert decoded(waiting.read())[0][1] == id
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"


def test_a_reset_removes_the_jobs_of_a_large_claim(wire: Wire, queue: bytes) -> None:
    wire.call("MPUT", queue, *(word for number in range(3_000) for word in ("JOB", number)))
    wire.call("CLAIM", "TAKE", queue, queue, 1, "COUNT", 3_000)
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    wait_for(lambda: wire.info()["registered_jobs"] == "0")


def test_a_reset_removes_many_queues_per_slice_with_many_clients(
    wire: Wire, wires: Callable[[], Wire], queue: bytes
) -> None:
    for each in [wires() for _ in range(50)]:
        each.send("GETJOB", "FROM", b"elsewhere " + queue)
    wait_for(lambda: wire.call("QSTAT", b"elsewhere " + queue) and wire.stat(b"elsewhere " + queue)[b"blocked"] == 50)
    wire.send_raw(b"".join(command("PAUSE", b"%s %d" % (queue, number), "in") for number in range(2_500)))
    assert {wire.read() for _ in range(2_500)} == {b"+in\r\n"}
    assert wire.ask("DEBUG", "FLUSHALL") == b"+OK\r\n"
    assert wire.info()["registered_queues"] == "0"


# ---- The rest --------------------------------------------------------------------------------------------------------


def test_bgrewriteaof_takes_a_snapshot(wire: Wire) -> None:
    wire.add("snapshot")
    assert wire.ask("BGREWRITEAOF") == b"+Background append only file rewriting started\r\n"
    told = wait_for(lambda: (told := wire.info("persistence"))["aof_rewrite_in_progress"] == "0" and told)
    assert told["aof_last_bgrewrite_status"] == "ok"
    assert int(told["aof_base_size"]) > 0
    assert int(told["aof_last_rewrite_time_sec"]) >= 0


def test_debug_that_ends_the_server_is_refused_unless_it_was_allowed(wire: Wire) -> None:
    for word in ("SEGFAULT", "OOM", "ASSERT", "RESTART", "CRASH-AND-RECOVER"):
        with pytest.raises(Refusal, match=f"NOPERM DEBUG {word} stops the server"):
            wire.call("DEBUG", word)


def test_debug_sleep_delays_all_clients(wire: Wire) -> None:
    began = time.monotonic()
    assert wire.ask("DEBUG", "SLEEP", "0.05") == b"+OK\r\n"
    assert time.monotonic() - began >= 0.05


def test_a_redis_get_is_not_taken_for_http(wire: Wire) -> None:
    assert wire.ask("GET", "key") == wire.ask("GET") == b"-ERR unknown command 'GET'\r\n"
    assert wire.ask("PING") == b"+PONG\r\n"
    wire.send_raw(b"GET /key HTTP/1.1\r\n")
    assert wire.read().startswith(b"-ERR this port speaks RESP, not HTTP; ")
    assert wire.read() == b""


# ---- Names of commands -----------------------------------------------------------------------------------------------


def test_a_command_goes_by_its_new_name_only(start: Callable[..., Server]) -> None:
    server = start("--no-journal", "--rename-command", "config", "hidden", "--rename-command", "DEBUG", "")
    wire = server.connect()
    assert wire.ask("CONFIG", "GET", "port") == b"-ERR unknown command 'CONFIG'\r\n"
    assert wire.ask("DEBUG", "FLUSHALL") == b"-ERR unknown command 'DEBUG'\r\n"
    assert wire.ask("HIDDEN", "GET", "port") == bulks("port", str(server.port))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["flushx", ""], "there is no command flushx"),
        (["config", "ping"], "there is a command ping already"),
    ],
)
def test_a_command_that_cannot_be_renamed_keeps_the_server_from_starting(
    tmp_path: Path, words: list[str], why: str
) -> None:
    """An operator who believes that a command is out of reach must not be wrong."""
    ports = ["--port", str(free_port()), "--iproto-port", "0", "--cluster-port", str(free_port())]
    told = f"penstock: flag --rename-command: rename-command: {why}\n"
    assert refusals(tmp_path, [*ports, "--rename-command", *words]) == [(2, told)]


# ---- Passwords -------------------------------------------------------------------------------------------------------


def test_without_its_password_a_client_can_do_nothing(start: Callable[..., Server]) -> None:
    """With a password, the server may listen on any address."""
    server = start("--bind", "0.0.0.0", "--requirepass", "s3cret", "--journal", "no", password="s3cret")
    wire = Wire(server.port)
    noauth = b"-NOAUTH Authentication required.\r\n"
    for words in ("PING", "HELLO", "ADDJOB q b 0", "CONFIG GET *", "DEBUG SLEEP 9", "MONITOR", "SHUTDOWN", "COMMAND"):
        assert wire.ask(*words.split()) == noauth
    assert wire.ask("NOSUCH") == b"-ERR unknown command 'NOSUCH'\r\n"
    assert wire.ask("QLEN") == b"-ERR wrong number of arguments for 'qlen' command\r\n"
    assert wire.ask("HELLO", 3)[:8] == b"-NOAUTH "
    leaving = Wire(server.port)
    assert (leaving.ask("QUIT"), leaving.read()) == (b"+OK\r\n", b"")
    assert wire.ask("AUTH", "wrong") == b"-ERR invalid password\r\n"
    assert wire.ask("AUTH", "x" * 600) == b"-ERR invalid password\r\n"
    assert wire.ask("AUTH", "default", "wrong")[:11] == b"-WRONGPASS "
    assert wire.ask("PING") == noauth
    assert wire.ask("HELLO", 2, "AUTH", "default", "s3cret")[:5] == b"*14\r\n"
    assert wire.ask("PING") == b"+PONG\r\n"
    # Commands before the password are refused, and commands after it run.
    other = Wire(server.port)
    other.send_raw(command("PING") + command("AUTH", "s3cret") + command("PING"))
    assert [other.read() for _ in range(3)] == [noauth, b"+OK\r\n", b"+PONG\r\n"]
    # A new password closes the other connections that used the old one.
    assert other.ask("CONFIG", "SET", "requirepass", "other") == b"+OK\r\n"
    assert wire.read() == b""
    third = Wire(server.port)
    assert third.ask("AUTH", "s3cret") == b"-ERR invalid password\r\n"
    assert third.ask("AUTH", "other") == b"+OK\r\n"
    assert other.ask("CONFIG", "SET", "requirepass", "") == b"+OK\r\n"
    fourth = Wire(server.port)
    assert fourth.ask("PING") == b"+PONG\r\n"
    assert fourth.ask("CONFIG", "SET", "requirepass", "s3cret") == b"+OK\r\n"
    for each in (wire, other, third, fourth, leaving):
        each.close()
    assert "s3cret" not in server.log()
