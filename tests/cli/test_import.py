"""`penstock import` puts every job exactly once, even if it is interrupted."""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli.imports.disque_aof import AofJob, DamagedAof, contents, decode
from penstock.cli.main import app
from tests.server.serving import PATIENCE_S, Server, environment

NODE = "dcb833cf" + "0" * 32
QUEUED, ACTIVE, ACKED = 2, 1, 3


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, words)])


def bodies(directory: Path, *tubes: str) -> Counter[Any]:
    """Return the bodies in the tubes of a queue, with their counts."""
    with penstock.open(directory) as queue:
        return Counter(
            str(job.body)
            for tube in tubes
            for state in ("ready", "delayed")
            for job in queue.tube(tube).jobs(state, 100_000)
        )


# ---- Disque's file ---------------------------------------------------------------------------------------------------


def id_of(number: int) -> bytes:
    return b"D-dcb833cf-%s-05a1" % base64.b64encode(struct.pack(">QQH", 0, number, 0))


def serialized(
    number: int,
    queue: bytes = b"emails",
    body: bytes | None = None,
    *,
    state: int = QUEUED,
    flags: int = 0,
    ttl: int = 86_400,
    age: int = 0,
    delay: int = 0,
    retry: int = 300,
    nacks: int = 0,
    now: int | None = None,
) -> bytes:
    """Encode a job as Disque does, field by field."""
    text = b"body %d" % number if body is None else body
    now = int(time.time()) if now is None else now
    made = (now - age) * 1_000 * 1_000_000 + number
    fields = struct.pack("<40sBBHIQIIHH", id_of(number), state, flags, 1, now + ttl, made, delay, retry, nacks, 0)
    strings = b"".join(struct.pack("<I", len(each)) + each for each in (queue, text))
    told = fields + strings + struct.pack("<I", 1) + NODE.encode()
    return struct.pack("<I", len(told)) + told


def line(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def loadjob(number: int, *args: Any, **fields: Any) -> bytes:
    return line(b"LOADJOB", serialized(number, *args, **fields))


def deljob(number: int) -> bytes:
    return line(b"DELJOB", id_of(number))


@pytest.fixture
def aof(tmp_path: Path) -> Path:
    """Return a file with every kind of command and job."""
    path = tmp_path / "disque.aof"
    path.write_bytes(
        loadjob(1)
        + loadjob(2)
        + deljob(1)
        + loadjob(3, b"pages", b"\x00\xff", retry=60, nacks=7, ttl=600)
        + loadjob(4, state=ACTIVE, delay=500, ttl=3_600)
        + loadjob(5, state=ACKED)
        + loadjob(6, ttl=-1)
        + loadjob(7, retry=0)
        + loadjob(8, retry=0, state=ACTIVE, delay=500, ttl=3_600)
        + loadjob(9, state=ACTIVE, age=100, delay=700, ttl=500)
        + loadjob(10, b"")
    )
    return path


def test_the_bytes_of_a_job_are_read_as_disque_wrote_them() -> None:
    # Encoded by hand: all numbers in hexadecimal, lowest byte first.
    raw = bytes.fromhex(
        "81000000"  # 129 bytes follow
        + b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1".hex()
        + "02 00 0100".replace(" ", "")  # queued; no flags; one replica
        + "0094c356"  # expires 1455657984
        + "0080c6d5d6b92c14"  # made 1453903200.000 s
        + "05000000"  # delay 5
        + "2c010000"  # retry 300
        + "0300"
        + "0100"  # three nacks, one delivery more
        + "05000000"
        + b"queue".hex()
        + "04000000"
        + b"body".hex()
        + "01000000"
        + NODE.encode().hex()
    )
    job = decode(raw)
    assert job == AofJob(
        id=b"D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1",
        state=QUEUED,
        flags=0,
        expires_ms=0x56C39400 * 1_000,
        created=0x142CB9D6D5C68000,
        delay_ms=5_000,
        retry_s=300,
        nacks=3,
        queue=b"queue",
        body=b"body",
    )
    made_ms = job.created // 1_000_000
    assert [job.delay_left_ms(made_ms + ms) for ms in (-9_000, 0, 4_000, 6_000)] == [5_000, 5_000, 1_000, 0]


def test_jobs_keep_their_options(tmp_path: Path, aof: Path) -> None:
    result = run("disque-aof", aof, "--into", tmp_path / "queue")
    assert result.exit_code == 1, result.output  # A queue without a name cannot be.
    with penstock.open(tmp_path / "queue") as queue:
        assert sorted(queue.tubes()) == ["emails", "pages"]
        emails = queue.tube("emails")
        assert emails.type == "disque"
        assert [job.body for job in emails.jobs("ready")] == [b"body 2"]
        assert sorted(job.body for job in emails.jobs("delayed")) == [b"body 4", b"body 8"]
        page = queue.tube("pages").named(id_of(3).decode())
        told = page.meta()
        assert page.body == b"\x00\xff" and page.nacks == told["nacks"] == 7 and told["ttr"] == 60
        assert 0 < told["expires"] - time.time() <= 600
        delayed = emails.named(id_of(4)).meta()
        assert 490 < delayed["wakes"] - time.time() <= 500 and 3_590 < delayed["expires"] - time.time() <= 3_600


def test_jobs_that_are_passed_over_are_counted_by_reason(tmp_path: Path, aof: Path) -> None:
    output = run("disque-aof", aof, "--into", tmp_path / "queue").output
    assert "4 jobs are imported" in output
    assert "\\n" not in output
    assert "2 were passed over: acked, deleted or expired before the file ended" in output
    assert "1 was passed over: expired since" in output
    assert "1 was passed over: to be delivered once at most, and perhaps were (see --once)" in output
    assert "1 was passed over: expiring before their delay ends" in output
    assert "1 was passed over: refused" in output and f"job {id_of(10).decode()}: a tube's name" in output


def test_at_most_once_jobs_are_imported_on_request(tmp_path: Path) -> None:
    aof = tmp_path / "disque.aof"
    aof.write_bytes(loadjob(1, retry=0) + loadjob(2, retry=0, flags=4))
    assert run("disque-aof", aof, "--into", tmp_path / "queue", "--once").exit_code == 0
    assert bodies(tmp_path / "queue", "emails") == {"b'body 1'": 1}


def test_jobs_are_imported_in_creation_order(tmp_path: Path) -> None:
    # A rewritten file has jobs in any order.
    aof, now = tmp_path / "disque.aof", int(time.time())
    aof.write_bytes(loadjob(3, now=now) + loadjob(1, now=now) + loadjob(2, age=-10, now=now) + loadjob(4, age=50))
    assert run("disque-aof", aof, "--into", tmp_path / "queue").exit_code == 0
    with penstock.open(tmp_path / "queue") as queue:
        assert [job.body for job in queue.tube("emails").jobs("ready")] == [b"body 4", b"body 1", b"body 3", b"body 2"]


def test_a_job_that_two_nodes_of_disque_had_is_imported_once(tmp_path: Path) -> None:
    for node, numbers in (("a", (1, 2)), ("b", (2, 3))):
        aof = tmp_path / f"{node}.aof"
        aof.write_bytes(b"".join(loadjob(number) for number in numbers))
        assert run("disque-aof", aof, "--into", tmp_path / "queue").exit_code == 0
    assert bodies(tmp_path / "queue", "emails") == {f"b'body {number}'": 1 for number in (1, 2, 3)}


def test_an_incomplete_command_at_the_end_is_ignored(tmp_path: Path) -> None:
    whole, half = loadjob(1), loadjob(2)
    for end in range(1, len(half)):
        found = contents(io.BytesIO(whole + half[:end]), len(whole) + end, lambda done, total: None)
        assert len(found.offsets) == 1 and found.torn_bytes == end
    path = tmp_path / "disque.aof"
    path.write_bytes(whole + half[:end])
    assert (
        f"the last {end} bytes of the file are an incomplete command"
        in run("disque-aof", path, "--into", tmp_path / "q").output
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n",
        b"*1\r\n$5\r\nFLUSH\r\n",
        b"*2\r\n$7\r\nLOADJOB\r\n$3\r\nabc\r\n",
        b"*2\r\n$7\r\nLOADJOB\r\n$3\r\nabcdef",
        b"*0\r\n",
        b"*-1\r\n",
        b"*99999999999999999999999999999999999999999999\r\n",
        line(b"LOADJOB", serialized(1)[:-1]),
        line(b"LOADJOB", serialized(1) + b"x"),
        line(b"LOADJOB", serialized(1)[:75] + b"\xff" + serialized(1)[76:]),
    ],
)
def test_a_file_that_is_not_an_aof_is_refused_in_one_sentence(tmp_path: Path, raw: bytes) -> None:
    aof = tmp_path / "disque.aof"
    aof.write_bytes(loadjob(1) + raw + loadjob(2))
    result = run("disque-aof", aof, "--into", tmp_path / "queue")
    assert result.exit_code == 1 and f"at byte {len(loadjob(1))} " in result.output
    assert isinstance(result.exception, SystemExit)


def test_damage_to_a_job_is_detected_or_changes_a_field() -> None:
    raw = serialized(1)
    for end in range(len(raw)):
        with pytest.raises(DamagedAof):
            decode(raw[:end])


def test_clients_of_disque_can_use_the_old_ids(tmp_path: Path) -> None:
    """A consumer that got a job from Disque can ack it in Penstock, also after a restart."""
    aof = tmp_path / "disque.aof"
    aof.write_bytes(b"".join(loadjob(number) for number in range(1, 9)))
    assert run("disque-aof", aof, "--into", tmp_path / "queue").exit_code == 0
    server = Server(tmp_path, "--dir", str(tmp_path / "queue"))
    try:
        wire = server.connect()
        assert wire.show(id_of(1))[b"body"] == b"body 1"
        assert wire.call("ACKJOB", id_of(1)) == 1
        assert wire.call("ACKJOB", id_of(1)) == 0 and wire.call("SHOW", id_of(1)) is None
        assert wire.call("ACKJOB", id_of(2), id_of(3), id_of(99)) == 2
        assert wire.call("FASTACK", id_of(4)) == 1
        assert wire.call("WORKING", id_of(5)) == 300
        assert wire.call("NACK", id_of(5)) == 1 and wire.show(id_of(5))[b"nacks"] == 1
        assert wire.call("DELJOB", id_of(5)) == 1
        server.kill()
        server.start_again()
        wire = server.connect()
        assert wire.call("ACKJOB", id_of(1)) == 0 and wire.call("ACKJOB", id_of(6)) == 1
        assert len(wire.get("emails", "NOHANG", "COUNT", 9)) == 2
        # A job that Penstock delivered can also be acked by its old id.
        assert wire.call("ACKJOB", id_of(7), id_of(8)) == 2 and wire.call("QLEN", "emails") == 0
        for wrong in (b"D-dcb833cf", b"x" * 40):
            assert wire.ask("ACKJOB", wrong).startswith(b"-BADID")
    finally:
        server.stop()


# ---- JSON lines ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.jsonl"
    path.write_text(
        '{"tube": "emails", "body": {"to": "ann"}, "delay": "2m", "ttr": 30, "nacks": 2}\n'
        "\n"
        '{"body": "plain", "priority": 5}\n'
        '{"body_base64": "AP8=", "ttl": null}\n'
        '{"tube": "emails", "body": "twice", "dedup": "a"}\n'
        '{"tube": "emails", "body": "twice", "dedup": "a"}'
    )
    return path


def test_each_line_is_a_job_with_its_options(tmp_path: Path, lines: Path) -> None:
    result = run("jsonl", lines, "--into", tmp_path / "queue", "--tube", "rest")
    assert result.exit_code == 0, result.output
    with penstock.open(tmp_path / "queue") as queue:
        (delayed,) = queue.tube("emails").jobs("delayed")
        assert delayed.body == {"to": "ann"} and delayed.meta()["ttr"] == 30 and delayed.nacks == 2
        assert [job.body for job in queue.tube("emails").jobs("ready")] == ["twice"]
        assert [job.body for job in queue.tube("rest").jobs("ready")] == [b"\x00\xff", "plain"]


BAD_LINES = {
    "nonsense": "it is not JSON",
    "[1]": 'it is not an object with either "body"',
    '{"tube": "t"}': 'it is not an object with either "body"',
    '{"body": 1}': 'it has no "tube"',
    '{"body": 1, "tube": 7}': 'it has no "tube"',
    '{"tube": "t", "body": 1, "dely": 3}': "unknown key 'dely'; known keys are tube, body, body_base64, at, batch",
    '{"tube": "t", "body": 1, "delay": "soon"}': "its delay is not a duration",
    '{"tube": "t", "body_base64": "?"}': "its body_base64 is not base64",
    '{"tube": "t", "body": 1, "delay": -1}': "delay must be",
    '{"tube": "t", "body": 1, "number": 7}': "a number must be below 0, the first one that the tube assigns itself",
    '{"tube": "t", "body": 1, "new": true}': "unknown key 'new'",
    '{"tube": "", "body": 1}': "a tube's name must have",
    '{"tube": "t", "body": 1, "nacks": -1}': "nacks must be 0 to",
}


def test_a_bad_line_is_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(['{"tube": "t", "body": "before"}', *BAD_LINES, '{"tube": "t", "body": "behind"}']))
    result = run("jsonl", file, "--into", tmp_path / "queue")
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    for number, wrong in enumerate(BAD_LINES.values(), 2):
        assert re.search(rf"line {number}: .*{re.escape(wrong)}", result.output), (number, wrong)
    assert "2 jobs are imported" in result.output and bodies(tmp_path / "queue", "t") == {"before": 1, "behind": 1}


def written(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(lines))
    return file


def test_a_tube_is_created_only_for_a_line_that_is_accepted(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '{"tube": "refused", "body": 1, "number": 1}',
        '{"tube": "unknown", "body": 1, "dely": 3}',
        '{"tube": "late", "body": 1, "state": "done"}',
        '{"tube": "late", "body": 2}',
    )
    result = run("jsonl", file, "--into", tmp_path / "queue")
    assert result.exit_code == 1 and "1 job is imported" in result.output
    assert "line 3: a fifottl tube has no jobs that are kept when they are done" in result.output
    with penstock.open(tmp_path / "queue") as queue:
        assert queue.tubes() == ["late"]


def test_lines_with_keys_get_a_tube_with_keys(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '{"tube": "users", "body": 1, "priority": 2}',
        '{"tube": "users", "body": 2, "key": "ann", "ttl": 60, "delay": 5}',
        '{"tube": "once", "body": 3, "once": true}',
        '{"tube": "plain", "body": "the \\"key\\" is in the text"}',
        '{"tube": "plain", "body": 5, "key": "bad", "dely": 1}',
    )
    assert "4 jobs are imported" in run("jsonl", file, "--into", tmp_path / "queue").output
    with penstock.open(tmp_path / "queue") as queue:
        assert {name: queue.tube(name).type for name in queue.tubes()} == {
            "users": "utubettl",
            "once": "disque",
            "plain": "fifottl",
        }


def test_the_requested_type_is_created_and_lines_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '{"tube": "users", "body": 1, "ttl": 60}',
        '{"tube": "users", "body": 2, "key": "ann"}',
    )
    result = run("jsonl", file, "--into", tmp_path / "queue", "--type", "utube")
    assert result.exit_code == 1 and "line 1: a utube tube has no ttl" in result.output
    with penstock.open(tmp_path / "queue") as queue:
        assert queue.tube("users").type == "utube" and queue.tube("users").take().body == 2
    result = run("jsonl", file, "--into", tmp_path / "queue", "--type", "utub")
    assert result.exit_code == 2 and "there is no type of tube called 'utub'" in result.output


def test_a_line_that_an_existing_tube_refuses_is_reported_with_its_number(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("t")
    file = written(tmp_path, '{"tube": "t", "body": 1}', '{"tube": "t", "body": 1, "key": "k"}')
    for words in (("--dry-run",), ()):
        result = run("jsonl", file, "--into", tmp_path / "queue", *words)
        assert result.exit_code == 1 and "line 2: a fifottl tube has no key" in result.output
        assert "1 job " in result.output and "1 was passed over: refused" in result.output


def test_a_dry_run_counts_what_the_import_then_puts(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "queue") as queue:
        queue.tube("fifo", "fifo")
        queue.tube("keyed", "utube")
    file = written(
        tmp_path,
        '{"tube": "fifo", "body": 1, "ttl": 5}',
        '{"tube": "fifo", "body": 1, "delay": 5}',
        '{"tube": "fifo", "body": 1, "priority": 5}',
        '{"tube": "fifo", "body": 1, "state": "buried"}',
        '{"tube": "keyed", "body": 1, "key": "k"}',
        '{"tube": "keyed", "body": 1, "ttr": 3}',
        '{"tube": "new", "body": 1, "state": "done"}',
        '{"tube": "new", "body": 1, "number": 3}',
        '{"tube": "new", "body": 1, "ttr": 0}',
        '{"tube": "new", "body": 1, "name": ""}',
        '{"tube": "new", "body": 1, "once": true, "priority": 1}',
        '{"tube": "other", "body": 1, "retry": "1x then bury"}',
    )
    told = [
        json.loads(run("jsonl", file, "--into", tmp_path / "queue", "--json", *words).stdout)
        for words in (("--dry-run",), ())
    ]
    assert told[0]["imported"] == told[1]["imported"] == 3
    assert told[0]["passed_over"] == told[1]["passed_over"] and told[1]["imported_now"] == 3


def test_the_summary_separates_new_jobs_from_existing_ones(tmp_path: Path) -> None:
    first, second = written(tmp_path, '{"tube": "t", "body": 1, "unique": "a"}'), tmp_path / "more.jsonl"
    second.write_text('{"tube": "t", "body": 1, "unique": "a"}\n{"tube": "t", "body": 2, "unique": "b"}')
    queue = tmp_path / "queue"
    assert "1 job is imported into" in run("jsonl", first, "--into", queue).output
    result = run("jsonl", second, "--into", queue)
    assert result.exit_code == 0
    assert f"2 jobs are imported into {queue}: 1 now, 1 was already there" in result.output
    told = json.loads(run("jsonl", second, "--into", queue, "--json").output)
    assert (told["imported"], told["imported_now"], told["already_there"]) == (2, 0, 2)
    (tmp_path / "more.jsonl.penstock-import").unlink()
    assert "2 jobs are imported into" in (output := run("jsonl", second, "--into", queue).output)
    assert "0 now, 2 were already there" in output


def test_a_created_tube_remembers_dedup_ids_until_the_import_has_finished(tmp_path: Path) -> None:
    file, state, queue = tmp_path / "jobs.jsonl", tmp_path / "state", tmp_path / "queue"
    file.write_text("".join(f'{{"tube": "t", "body": {number}}}\n' for number in range(10)))
    command = [sys.executable, "-c", KILLED.replace("1_000", "10"), "import", "jsonl", str(file), "--state", str(state)]
    with subprocess.Popen([*command, "--into", str(queue)], env=environment(), stdout=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    with penstock.open(queue) as opened:
        # All jobs were put, but the state file does not count them. Consumers may take them before the import resumes.
        assert opened.tube("t").policy.dedup_ms == 30 * 86_400_000
        for _ in range(10):
            opened.tube("t").take().ack()
    assert "0 now, 10 were already there" in run("jsonl", file, "--into", queue, "--state", state).output
    with penstock.open(queue) as opened:
        assert sum(opened.tube("t").stats().values()) == 0
        assert opened.tube("t").policy.dedup_ms == 600_000


# ---- Resuming --------------------------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing(tmp_path: Path, lines: Path) -> None:
    result = run("jsonl", lines, "--into", tmp_path / "queue", "--tube", "rest", "--dry-run", "--json")
    told = json.loads(result.output)
    assert told["imported"] == 5 and told["passed_over"] == {"empty lines": 1} and told["dry_run"] is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.jsonl"]


def test_a_batch_that_is_missing_in_the_state_file_is_put_once(tmp_path: Path) -> None:
    file, state, queue = tmp_path / "jobs.jsonl", tmp_path / "state", tmp_path / "queue"
    file.write_text("".join(f'{{"tube": "t", "body": {number}}}\n' for number in range(600)))
    assert run("jsonl", file, "--into", queue, "--state", state).exit_code == 0
    told = json.loads(state.read_text())
    assert told["done"] == told["imported"] == 600 and told["finished"]
    # Simulate a kill after the second batch was put and before the state file was written.
    state.write_text(json.dumps({**told, "done": 500, "imported": 500, "finished": False}))
    assert "600 jobs are imported" in run("jsonl", file, "--into", queue, "--state", state).output
    # Repeat it after the dedup window has passed.
    with penstock.open(queue) as opened:
        opened.tube("t").alter(dedup_count=0)
    state.unlink()
    assert run("jsonl", file, "--into", queue, "--state", state).exit_code == 0
    assert bodies(queue, "t") == {str(number): 1 for number in range(600)}


def test_repeated_imports_put_jobs_of_disque_once(tmp_path: Path) -> None:
    aof, queue = tmp_path / "disque.aof", tmp_path / "queue"
    aof.write_bytes(b"".join(loadjob(number) for number in range(50)))
    for _ in range(2):
        assert run("disque-aof", aof, "--into", queue).exit_code == 0
        with penstock.open(queue) as opened:
            opened.tube("emails").alter(dedup_count=0)
        (tmp_path / "disque.aof.penstock-import").unlink()
    assert bodies(queue, "emails") == {f"b'body {number}'": 1 for number in range(50)}


# An import that is killed after its second batch and before the state file is written.
KILLED = """
import os, signal
from penstock.cli.imports.import_state import ImportState
from penstock.cli.main import main

save = ImportState.save

def killed(state, path):
    if state.done == 1_000:
        os.kill(os.getpid(), signal.SIGKILL)
    save(state, path)

ImportState.save = killed
main()
"""


def test_a_killed_import_continues(tmp_path: Path) -> None:
    file, queue, count = tmp_path / "jobs.jsonl", tmp_path / "queue", 3_000
    file.write_text("".join(f'{{"tube": "t", "body": {number}}}\n' for number in range(count)))
    command = [sys.executable, "-c", KILLED, "import", "jsonl", str(file), "--into", str(queue)]
    # The process kills itself, because another process might kill it too late.
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    done = json.loads((tmp_path / "jobs.jsonl.penstock-import").read_text())["done"]
    assert 0 < done < count
    assert "3,000 jobs are imported" in run("jsonl", file, "--into", queue).output
    assert bodies(queue, "t") == {str(number): 1 for number in range(count)}


def test_passed_over_items_are_counted_once_after_kills(tmp_path: Path) -> None:
    lines = [
        '{"tube": "a", "body": 1}',
        "",
        "nonsense",
        '{"tube": "b", "body": 1, "number": 3}',
        '{"tube": "b", "body": 1}',
    ]
    file, queue = written(tmp_path, *lines), tmp_path / "queue"
    # Kill it before the third write of the state file, which is after a batch that created two tubes.
    script = KILLED.replace("state.done == 1_000", "state.done == 5")
    command = [sys.executable, "-c", script, "import", "jsonl", str(file), "--into", str(queue)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    told = json.loads(run("jsonl", file, "--into", queue, "--json").stdout)
    assert told["passed_over"] == {"empty lines": 1, "lines that are no jobs": 1, "refused": 1}
    assert told["imported"] == 2


def test_jobs_are_imported_into_a_server(tmp_path: Path, aof: Path, lines: Path) -> None:
    server = Server(tmp_path, "--appendfsync", "never")
    url = f"penstock://127.0.0.1:{server.port}"
    try:
        assert "4 jobs are imported" in run("disque-aof", aof, "--into", url).output
        assert run("jsonl", lines, "--into", url, "--tube", "rest").exit_code == 0
        with penstock.connect(url) as queue:
            page = queue.tube("pages").named(id_of(3))
            assert page.body == b"\x00\xff" and page.nacks == 7 and page.meta()["ttr"] == 60
            assert queue.stats()["emails"] == {**dict.fromkeys(queue.stats()["emails"], 0), "ready": 2, "delayed": 3}
    finally:
        server.stop()
    lines.write_text('{"tube": "t", "body": 1}')
    result = run("jsonl", lines, "--into", f"{url}?retry_for=0", "--state", tmp_path / "other")
    assert result.exit_code == 75 and "run the same command again to continue" in result.output


def test_the_state_file_of_another_import_is_refused(tmp_path: Path, lines: Path) -> None:
    state = tmp_path / "state"
    words = ("jsonl", lines, "--tube", "rest", "--state", state, "--into")
    assert run(*words, tmp_path / "queue").exit_code == 0
    assert "belongs to an import into" in run(*words, tmp_path / "elsewhere").output
    lines.write_text(lines.read_text() + "\n")
    assert "belongs to another source" in run(*words, tmp_path / "queue").output
    state.write_text("nonsense")
    result = run(*words, tmp_path / "queue")
    assert result.exit_code == 1 and "cannot be read" in result.output
