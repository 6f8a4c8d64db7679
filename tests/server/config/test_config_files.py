"""Config files of both forms, correct and malformed."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.configuration import Config, ConfigError, load
from penstock.server.config.settings import SETTINGS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    return tmp_path


def loaded(cwd: Path, file: str, **files: str | bytes) -> Config:
    """Write files, `disque_conf` as disque.conf, and return the configuration from one of them."""
    for name, text in files.items():
        raw = text if isinstance(text, bytes) else text.encode()
        (cwd / name.replace("_", ".")).write_bytes(raw)
    return load(file, [], {}, cwd)


def refused(cwd: Path, file: str, **files: str | bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(cwd, file, **files)
    assert len(str(caught.value)) < 300
    return str(caught.value)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(cwd: Path) -> None:
    assert loaded(cwd, "a.conf", a_conf=b"\xef\xbb\xbfport 1\r\nhz 2\r\n").port == 1
    config = loaded(cwd, "a.toml", a_toml=b"\xef\xbb\xbfport = 1\r\nhz = 2\r\n")
    assert (config.port, config.hz, config.origin("hz")) == (1, 2, "a.toml line 2")


def test_bytes_that_are_no_utf8_survive_in_disques_form(cwd: Path) -> None:
    config = loaded(cwd, "a.conf", a_conf=b"requirepass \xff\xfe")
    assert config.requirepass.encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert refused(cwd, "a.toml", a_toml=b"requirepass = '\xff'") == "a.toml: is not UTF-8"


@pytest.mark.parametrize(
    ("text", "is_disque"),
    [
        ("port 1", True),
        ("# port = 1\n\n  port 1", True),
        ("", True),
        ("# Nothing.", True),
        ("port = 1", False),
        ("port=1", False),
        ("# port 1\n[users.a]\npassword = 'x'", False),
        ("'port' = 1", False),
        ("requirepass a=b", True),
    ],
)
def test_the_form_of_a_file_is_detected_by_its_first_line(cwd: Path, text: str, is_disque: bool) -> None:
    assert loaded(cwd, "some.conf", some_conf=text).is_disque == is_disque


def test_a_name_that_ends_in_toml_is_toml(cwd: Path) -> None:
    assert "a.toml: Expected '=' after a key" in refused(cwd, "a.toml", a_toml="port 1")


def test_standard_input_is_a_file_that_cannot_be_rewritten(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"port 1")))
    config = load("-", [], {}, cwd)
    assert (config.port, config.origin("port"), config.file) == (1, "standard input line 1", None)


# ---- Includes --------------------------------------------------------------------------------------------------------


def test_an_include_counts_where_it_stands_and_is_relative_to_its_file(cwd: Path) -> None:
    (cwd / "sub").mkdir()
    (cwd / "sub" / "more.conf").write_text("hz 3\ninclude ../last.conf\n")
    config = loaded(
        cwd, "a.conf", a_conf="port 1\nhz 1\ninclude sub/more.conf\nport 4", last_conf="databases 5\nport 5"
    )
    assert (config.port, config.hz, config.databases) == (4, 3, 5)
    assert config.origin("hz") == "sub/more.conf line 1" and config.origin("databases") == "../last.conf line 1"


def test_an_error_in_an_included_file_names_that_file(cwd: Path) -> None:
    assert refused(cwd, "a.conf", a_conf="include b.conf", b_conf="\nprot 1") == (
        "b.conf line 2: there is no directive 'prot'; did you mean port?"
    )
    assert refused(cwd, "a.conf", a_conf="\ninclude nowhere.conf") == (
        "a.conf line 2: nowhere.conf: No such file or directory"
    )


def test_files_that_include_each_other_are_refused(cwd: Path) -> None:
    assert refused(cwd, "a.conf", a_conf="include a.conf") == "a.conf line 1: 'a.conf' includes itself"
    assert refused(cwd, "a.conf", a_conf="include b.conf", b_conf="include ./a.conf") == (
        "b.conf line 1: './a.conf' includes itself"
    )


def test_a_link_is_followed_unless_it_leads_nowhere(cwd: Path) -> None:
    (cwd / "sub").mkdir()
    (cwd / "sub" / "real.conf").write_text("include beside.conf\n")
    (cwd / "sub" / "beside.conf").write_text("hz 3\n")
    (cwd / "link.conf").symlink_to("sub/real.conf")
    (cwd / "loop.conf").symlink_to("loop.conf")
    assert loaded(cwd, "a.conf", a_conf="include link.conf").hz == 3
    assert "Too many levels of symbolic links" in refused(cwd, "a.conf", a_conf="include loop.conf")


def test_includes_are_bounded_in_depth_and_in_number(cwd: Path) -> None:
    for number in range(40):
        (cwd / f"{number}.conf").write_text(f"include {number + 1}.conf\n")
    assert "16 deep, and 100 in total" in refused(cwd, "0.conf")
    for number in range(12):
        (cwd / f"{number}.conf").write_text(f"include {number + 1}.conf\n" * 2)
    (cwd / "12.conf").write_text("")
    assert "16 deep, and 100 in total" in refused(cwd, "0.conf")


@pytest.mark.parametrize("line", ["include", "include a b", 'include ""', "include a\0b"])
def test_an_include_names_one_file(cwd: Path, line: str) -> None:
    assert "a.conf line 1: include must be followed by the path of one file" in refused(cwd, "a.conf", a_conf=line)


# ---- Malformed files -------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_long_is_refused(cwd: Path) -> None:
    assert "more than 1,048,576 bytes" in refused(cwd, "a.conf", a_conf=b"x" * 10_000_000)
    assert refused(cwd, "a.conf", a_conf=b"\n\nport " + b"1" * 70_000) == "a.conf line 3: is longer than 65,536 bytes"
    assert "more than 1,048,576 bytes" in refused(cwd, "a.toml", a_toml=b"x" * 10_000_000)
    assert len(refused(cwd, "a.conf", a_conf=b"x" * 60_000)) < 200


def test_an_unreadable_file_is_reported(cwd: Path) -> None:
    assert refused(cwd, "nowhere.conf") == "nowhere.conf: No such file or directory"
    assert refused(cwd, ".") == ".: Is a directory"
    assert "null byte" in refused(cwd, "a\0b")


@pytest.mark.parametrize("line", ['requirepass "x', "requirepass 'x'y"])
def test_an_unclosed_quote_is_reported(cwd: Path, line: str) -> None:
    assert refused(cwd, "a.conf", a_conf=line) == "a.conf line 1: a quote is not closed at the end of a word"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1\nport 2", "a.toml: Expected '=' after a key in a key/value pair (at line 2, column 6)"),
        ("port = 1\nport = 2\n", "a.toml: Cannot overwrite a value"),
        ("hz = 1\nprot = 1", "a.toml line 2: there is no setting 'prot'; did you mean port?"),
        ("max_clients = 0", "a.toml line 1: max_clients must be a whole number from 1 to 1000000, not '0'"),
        ("port = [7711]", "a.toml line 1: port must be a whole number from 0 to 65535, not '7711'"),
        ("port = 1.5", "a.toml line 1: port must be a whole number from 0 to 65535, not '1.5'"),
        ("port = true", "a.toml line 1: port must be a whole number from 0 to 65535, not 'True'"),
        ("port = 1979-05-27", "a.toml line 1: port must be"),
        ("timeout = nan", "a.toml line 1: timeout must be"),
        ("bind = [\n  'a',\n  1,\n]", "a.toml line 1: bind must be 1 to 16 addresses"),
        ("[server]\nport = 1", "a.toml line 1: there is no setting 'server'"),
        (f"port = {'9' * 5_000}", "a.toml: "),
        (f"port = {'[' * 5_000}", "a.toml: "),
    ],
)
def test_bad_toml_is_one_sentence(cwd: Path, text: str, message: str) -> None:
    assert refused(cwd, "a.toml", a_toml=text).startswith(message)


DISQUES_OWN = """
daemonize no
pidfile /var/run/disque.pid
port 7711
tcp-backlog 511
bind 127.0.0.1
unixsocket /tmp/disque.sock
unixsocketperm 700
timeout 0
tcp-keepalive 0
loglevel notice
logfile ""
syslog-enabled no
syslog-ident disque
syslog-facility local0
databases 16
dir ./
requirepass foobared
rename-command CONFIG b840fc02d524045429941cc15f59e41cb7be6c52
maxclients 10000
maxmemory 1gb
maxmemory-policy acks
maxmemory-samples 5
appendonly no
appendfilename "disque.aof"
appendfsync everysec
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
aof-load-truncated yes
aof-enqueue-jobs-once no
aof-rewrite-incremental-fsync yes
cluster-config-file nodes.conf
cluster-node-timeout 15000
slowlog-log-slower-than 10000
slowlog-max-len 128
latency-monitor-threshold 0
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit slave 256mb 64mb 60
client-output-buffer-limit pubsub 32mb 8mb 60
hz 10
activerehashing yes
watchdog-period 0
"""


def test_every_directive_of_disque_is_understood_and_has_its_default(cwd: Path) -> None:
    config = loaded(cwd, "disque.conf", disque_conf=DISQUES_OWN)
    changed = {setting.name for setting in SETTINGS if not config.is_default(setting)}
    assert changed == {"unixsocket", "unixsocketperm", "requirepass", "rename_command"}


PIECES = st.sampled_from(
    [
        *(b"port", b"bind", b"include", b"user", b"maxmemory", b"a.conf", b"client-output-buffer-limit", b"users"),
        *(b" ", b"\n", b"\r\n", b'"', b"'", b"\\", b"=", b"[", b"]", b"#", b".", b"0", b"7711", b"1gb", b"-1", b"yes"),
        *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    ]
)


@pytest.mark.parametrize("name", ["a.conf", "a.toml"])
@given(raw=st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=60))
def test_any_bytes_are_a_config_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, raw: bytes
) -> None:
    cwd = tmp_path_factory.getbasetemp()
    (cwd / name).write_bytes(raw)
    try:
        load(name, [], {}, cwd)
    except ConfigError as error:
        assert "\n" not in str(error)


# ---- The documentation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["toml", "conf"])
def test_the_files_in_the_documentation_load(cwd: Path, form: str) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    examples = re.findall(rf"^```{form}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert examples
    (cwd / "common.conf").write_text("")
    for text in examples:
        (cwd / "example").write_text(text)
        config = load("example", [], {}, cwd)
        assert config.is_disque == (form == "conf") and config.users["alice"].tubes == (b"mail.*", b"q?")
