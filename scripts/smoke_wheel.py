"""Check an installed wheel: a queue that survives kill -9, and a server that answers PING.

    python scripts/smoke_wheel.py [--compiled]

It uses only the `penstock` that is installed for this Python, with the extra [server]. With --compiled, an interpreted
package is an error. cibuildwheel runs this script for each wheel, and the tests run it for the wheel of this machine.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

# Puts, takes and acks jobs in a directory, and then waits to be killed with the second job still taken.
WORKER = """
import sys, penstock
queue = penstock.open(sys.argv[1])
tube = queue.tube("smoke", ttr=60)
tube.put_many(["first", "second"])
tube.take().ack()
print(tube.take().body, flush=True)
sys.stdin.read()
"""


def check_crash(directory: Path) -> None:
    """Kill a process that has a queue open. Check that its acked job is gone and its taken job is not."""
    import penstock

    words = [sys.executable, "-c", WORKER, str(directory)]
    worker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None and worker.stdin is not None
    assert worker.stdout.readline() == "second\n"
    worker.kill()
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()
    with penstock.open(str(directory)) as queue:
        job = queue.tube("smoke", ttr=60).take(timeout=5)
        assert job is not None and job.body == "second" and job.deliveries == 2, job
        job.ack()
        assert queue.stats()["smoke"]["ready"] == 0


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_server(directory: Path) -> None:
    """Start a server, and put, take and ack a job through it."""
    import penstock

    port = free_port()
    words = [sys.executable, "-m", "penstock", "serve", "--dir", str(directory), "--port", str(port)]
    server = subprocess.Popen([*words, "--iproto-port", "0", "--cluster-port", "0"])
    try:
        with penstock.connect(f"penstock://127.0.0.1:{port}", retry_for=60) as queue:
            assert queue.execute("PING") == b"PONG"
            tube = queue.tube("smoke")
            tube.put("over a socket")
            job = tube.take(timeout=5)
            assert job is not None and job.body == "over a socket", job
            job.ack()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Check an installed wheel.")
    parser.add_argument("--compiled", action="store_true", help="fail if the package is interpreted")
    wanted = parser.parse_args()
    words = [sys.executable, "-m", "penstock", "--version"]
    version = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    if wanted.compiled and "(compiled," not in version:
        sys.exit(f"the package should be compiled, but it is: {version}")
    with tempfile.TemporaryDirectory(prefix="penstock-smoke-") as directory:
        check_crash(Path(directory, "queue"))
        check_server(Path(directory, "server"))
    print(f"{version}: kill -9 lost no job, and the server answers")


if __name__ == "__main__":
    main()
