"""`penstock cli` sends raw commands to a server, from a shell, from a file and at a prompt."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.console.manual import CommandHelp, Manual, built_in
from penstock.cli.main import app
from tests.cli.terminal import Terminal, restarted
from tests.ports import free_port
from tests.server.serving import Server, wait_for

# The session in the setup section of Disque's README.
TRANSCRIPT = """\
127.0.0.1:7711> ADDJOB queue body 0
D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1
127.0.0.1:7711> GETJOB FROM queue
1) 1) "queue"
   2) "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1"
   3) "body"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"), "--appendfsync", "never")
    yield server
    server.stop()


def cli(*words: str, port: int, stdin: str = "", **environment: str) -> Result:
    return CliRunner().invoke(app, ["cli", "-p", str(port), *words], input=stdin, env=environment)


class Prompt(Terminal):
    """`penstock cli` at a terminal."""

    def __init__(self, home: Path, port: int, *words: str) -> None:
        super().__init__(home, "cli", "-p", str(port), *words)
        self.prompt = f"127.0.0.1:{port}> "

    def ask(self, line: str) -> str:
        return self.type(line, self.prompt)


@pytest.fixture
def prompt(tmp_path: Path, server: Server) -> Iterator[Prompt]:
    prompt = Prompt(tmp_path, server.port)
    prompt.until(prompt.prompt)
    yield prompt
    prompt.key("quit\n")
    assert prompt.ended() == 0


# ---- From a shell ----------------------------------------------------------------------------------------------------


def test_one_command_from_a_shell(server: Server) -> None:
    id = cli("addjob", "shell", "body", "0", port=server.port).stdout.strip()
    assert re.fullmatch(r"D-\S{8}-\S{24}-05a1", id)
    assert cli("getjob", "from", "shell", port=server.port).stdout == f"shell\n{id}\nbody\n"
    assert cli("--no-raw", "ackjob", id, port=server.port).stdout == "(integer) 1\n"


def test_words_after_the_command_are_not_options(server: Server) -> None:
    assert cli("ping", "--raw", port=server.port).stdout == "--raw\n"
    assert cli("ping", "-1", port=server.port).stdout == "-1\n"


def test_a_refusal_is_exit_code_1(server: Server) -> None:
    done = cli("nonsense", port=server.port)
    assert done.exit_code == 1 and "ERR unknown command" in done.stdout


def test_many_commands_from_a_file(server: Server) -> None:
    lines = "".join(f"ADDJOB lines {number} 0\n" for number in range(100)) + '\nADDJOB lines "two words\nQLEN lines\n'
    done = cli(port=server.port, stdin=lines)
    assert len(set(re.findall(r"^D-.*$", done.stdout, re.MULTILINE))) == 100
    assert done.stdout.endswith("(error) a quote is not closed, or closed in the middle of a word\n100\n")
    assert done.exit_code == 1 and cli(port=server.port, stdin="ping\nquit\nnonsense\n").exit_code == 0


def test_an_unreachable_server_is_reported_in_one_sentence() -> None:
    port = free_port()
    done = cli("ping", port=port)
    assert done.exit_code == 75 and done.stdout == ""
    assert done.stderr.startswith(f"penstock: no server listens on 127.0.0.1:{port}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"\x15\x03\x01\n"])
def test_a_server_without_resp_is_reported_in_one_sentence(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection = other.accept()[0]
            with connection:
                connection.recv(4096)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        done = cli("ping", port=other.getsockname()[1])
        thread.join()
    assert done.exit_code == 75 and "does not speak RESP" in done.stderr and "Traceback" not in done.stderr


def test_a_connection_lost_during_a_command_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def hang_up() -> None:
            other.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        done = cli("ping", port=other.getsockname()[1])
        thread.join()
    assert done.exit_code == 75 and "it is unknown whether the command ran" in done.stderr


def test_a_url_selects_the_server(server: Server, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["cli", "-u", f"penstock://127.0.0.1:{server.port}", "ping"])
    assert result.stdout == "PONG\n"
    result = CliRunner().invoke(app, ["cli", "ping"], env={"PENSTOCK_URL": f"penstock://127.0.0.1:{server.port}"})
    assert result.stdout == "PONG\n"
    assert "not a server" not in cli("-h", "::1", "ping", port=free_port()).stderr
    wrong = CliRunner().invoke(app, ["cli", "-u", str(tmp_path), "ping"])
    assert wrong.exit_code == 2 and "is a directory, but this command needs a server" in wrong.stderr


def test_a_password_is_sent_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    server = Server(tmp_path, "--requirepass", "open sesame", password="open sesame")
    try:
        assert cli("-a", "open sesame", "ping", port=server.port).stdout == "PONG\n"
        assert cli("ping", port=server.port, PENSTOCK_PASSWORD="open sesame").stdout == "PONG\n"
        assert "NOAUTH" in cli("ping", port=server.port).stdout
        wrong = cli("-a", "guess", "ping", port=server.port)
        assert wrong.exit_code == 4 and "see -a and --user" in wrong.stderr
    finally:
        server.stop()


def test_commands_run_over_tls(tmp_path: Path, server: Server, needs: Callable[[object, str], None]) -> None:
    needs(shutil.which("openssl"), "openssl is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost"
    files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*make.split(), *files], check=True, capture_output=True)
    port = free_port()
    secure = Server(tmp_path, "--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key)
    try:
        trusted = f"penstock://localhost:{port}?tls=1&ca={certificate}"
        assert CliRunner().invoke(app, ["cli", "-u", trusted, "ping"]).stdout == "PONG\n"
        untrusted = CliRunner().invoke(app, ["cli", "-u", f"penstock://localhost:{port}?tls=1", "ping"])
        assert untrusted.exit_code == 75 and "give the right ca=" in untrusted.stderr
        plain = CliRunner().invoke(app, ["cli", "-u", f"penstock://localhost:{server.port}?tls=1", "ping"])
        assert plain.exit_code == 75 and "TLS handshake" in plain.stderr
    finally:
        secure.stop()


# ---- At a prompt -----------------------------------------------------------------------------------------------------


def test_the_session_in_disques_readme_is_reproduced(prompt: Prompt, server: Server) -> None:
    seen = prompt.prompt + "ADDJOB queue body 0\n" + prompt.ask("ADDJOB queue body 0")
    seen += prompt.prompt + "GETJOB FROM queue\n" + prompt.ask("GETJOB FROM queue")
    id = re.findall(r"D-\S{8}-\S{24}-05a1", seen)[0]
    assert seen.replace(str(server.port), "7711").replace(id, "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1") == TRANSCRIPT


def test_answers_and_errors_at_the_prompt(prompt: Prompt) -> None:
    assert prompt.ask("QLEN typed") == "(integer) 0\n"
    assert prompt.ask("QSTAT typed") == "(nil)\n"
    assert prompt.ask("QPEEK typed 5") == "(empty array)\n"
    assert prompt.ask("ACKJOB nonsense") == "(error) BADID Invalid Job ID format.\n"
    assert prompt.ask('PING "two words') == "(error) a quote is not closed, or closed in the middle of a word\n"
    assert prompt.ask("") == ""
    assert "registered_jobs:" in prompt.ask("INFO jobs").splitlines()[1]


def test_help_shows_the_grammar_of_a_command(prompt: Prompt) -> None:
    told = prompt.ask("help qpeek")
    assert "QPEEK queue count" in told and "Show the first jobs of a queue, or the last." in told
    assert "Ctrl-D" in prompt.ask("help") and "SHOW id" in prompt.ask("? @read")
    assert "There is no bogus." in prompt.ask("help bogus")
    assert "TUBE DROP name" in prompt.ask("help tube") and "TUBE DROP" not in prompt.ask("help tube create")


def test_ctrl_c_interrupts_a_waiting_command_but_not_the_prompt(prompt: Prompt, server: Server) -> None:
    wire = server.connect()
    prompt.key("GETJOB FROM nothing-comes\n")
    wait_for(lambda: b"cmd=getjob" in wire.call("CLIENT", "LIST"))
    prompt.interrupt()
    assert "(interrupted; this is a new connection" in prompt.until(prompt.prompt)
    assert prompt.ask("PING") == "PONG\n"
    prompt.key("half a line")
    prompt.until("half a line")
    prompt.interrupt()
    prompt.until(prompt.prompt)
    assert prompt.ask("PING") == "PONG\n"


def test_monitor_shows_commands_until_ctrl_c(prompt: Prompt, server: Server) -> None:
    prompt.key("MONITOR\n")
    prompt.until("OK\n")
    server.connect().call("QLEN", "watched")
    prompt.until('"QLEN" "watched"\n')
    prompt.interrupt()
    prompt.until(prompt.prompt)


def test_the_prompt_reports_a_lost_server_and_reconnects(tmp_path: Path) -> None:
    server = Server(tmp_path, "--no-journal")
    prompt = Prompt(tmp_path, server.port)
    prompt.until(prompt.prompt)
    assert prompt.ask("PING") == "PONG\n"
    server.kill()
    assert "no server listens" in prompt.type("PING", "not connected> ")
    with restarted(server):
        assert prompt.ask("PING") == f"(connected to 127.0.0.1:{server.port})\nPONG\n"
        prompt.key("\x04")
        assert prompt.ended() == 0


def test_the_history_file_contains_no_passwords(tmp_path: Path, server: Server) -> None:
    prompt = Prompt(tmp_path, server.port)
    prompt.until(prompt.prompt)
    for line in ("PING first", "AUTH secret", "HELLO 3 AUTH somebody secret", "CONFIG SET requirepass ''"):
        prompt.ask(line)
    prompt.key("quit\n")
    assert prompt.ended() == 0
    history = tmp_path / "penstock" / "cli-history"
    assert history.read_text().splitlines() == ["PING first", "quit"]
    assert history.stat().st_mode & 0o777 == 0o600


# ---- The manual ------------------------------------------------------------------------------------------------------


def test_the_manual_has_the_commands_of_this_version() -> None:
    manual = built_in()
    assert "QPEEK queue count" in manual.help(["qpeek"]) and "TUBE DROP name" in manual.help(["tube", "drop"])


MANUAL = Manual(
    [
        CommandHelp("PING", "[message]", "Answer PONG.", "read"),
        CommandHelp("GETJOB", "[NOHANG] [TIMEOUT ms] FROM queue [queue ...]", "Take jobs.", "write"),
        CommandHelp("TUBE CREATE", "name [TYPE type] [TTL d]", "Make a tube.", "write"),
        CommandHelp("TUBE DROP", "name", "Remove a tube.", "write"),
        CommandHelp("CLIENT", "LIST | KILL id | REPLY ON|OFF|SKIP", "Connections.", "admin"),
    ]
)


@pytest.mark.parametrize(
    ("words", "begun", "completions"),
    [
        ([], "g", ["getjob"]),
        ([], "G", ["GETJOB"]),
        ([], "x", []),
        (["getjob"], "", ["NOHANG", "TIMEOUT", "FROM"]),
        (["getjob", "nohang"], "fr", ["from"]),
        (["client"], "", ["LIST", "KILL", "REPLY"]),
        (["client", "reply"], "", ["ON", "OFF", "SKIP"]),
        (["client", "list"], "", []),
        (["help"], "cl", ["client"]),
        (["nonsense"], "", []),
        ([], "TU", ["TUBE"]),
        (["tube"], "", ["CREATE", "DROP"]),
        (["tube", "create", "emails"], "t", ["type", "ttl"]),
        (["help", "tube"], "d", ["drop"]),
    ],
)
def test_tab_completes_commands_and_arguments(words: list[str], begun: str, completions: list[str]) -> None:
    assert MANUAL.completions(words, begun) == completions


def test_a_user_without_a_password_is_not_the_default_user(server: Server) -> None:
    result = cli("--user", "bob", "PING", port=server.port)
    assert result.exit_code == 4 and "PONG" not in result.output and "see -a and --user" in result.output


def test_failed_authentication_has_its_own_exit_code(tmp_path: Path) -> None:
    server = Server(tmp_path, "--no-journal", "--requirepass", "right", password="right")
    for words in (["-a", "wrong", "ping"], ["ping"], ["auth", "wrong"]):
        assert cli(*words, port=server.port).exit_code == 4, words
    assert cli(port=server.port, stdin="ping\n").exit_code == 4
    assert cli("-a", "right", "nonsense", port=server.port).exit_code == 1
    assert cli("-a", "right", "ping", port=server.port).exit_code == 0
    server.stop()
