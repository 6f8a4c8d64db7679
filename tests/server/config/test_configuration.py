"""Settings: every source works, the right source wins, and errors are one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from penstock.server import machine
from penstock.server.config.configuration import BadValue, Config, ConfigError, OutputLimit, UnknownSetting, User, load
from penstock.server.config.kinds import Collected
from penstock.server.config.settings import DISQUE_ORDER, SETTINGS, Setting

GIVABLE = [setting for setting in SETTINGS if not isinstance(setting.kind, Collected)]
DIGEST = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    return tmp_path


def configured(
    cwd: Path,
    *flags: str,
    conf: str | None = None,
    toml: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration from one file or none, and these flags."""
    file = "disque.conf" if conf is not None else "penstock.toml" if toml is not None else None
    if file is not None:
        (cwd / file).write_text(str(conf if conf is not None else toml))
    return load(file, flags, environment or {}, cwd)


def refused(cwd: Path, *flags: str, **given: str) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(cwd, *flags, conf=given.get("conf"), toml=given.get("toml"))
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---- The table -------------------------------------------------------------------------------------------------------


def test_the_annotations_of_config_are_the_table() -> None:
    assert Config.__annotations__ == {setting.name: setting.kind.annotation for setting in SETTINGS}


def test_every_setting_has_a_description_of_one_sentence() -> None:
    for setting in SETTINGS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", setting.name) and re.fullmatch(r"[a-z][a-z0-9-]*", setting.directive)
        assert re.fullmatch(r"[A-Z]([^.\n]|\.(?=\S))*\.", setting.description), setting.name
    words = [word for setting in SETTINGS for word in {setting.name.replace("_", "-"), setting.directive}]
    assert len(words) == len(set(words)), "a word means one setting"
    assert set(DISQUE_ORDER) <= {setting.directive for setting in SETTINGS}


@pytest.mark.parametrize("setting", GIVABLE, ids=lambda setting: setting.name)
def test_every_written_form_of_a_default_is_read_back(cwd: Path, setting: Setting) -> None:
    for config in (configured(cwd), configured(cwd, conf="")):
        value = config.value(setting)
        forms = [setting.kind.text(value), setting.kind.disque(value)]
        if setting.name == "tcp_keepalive":
            forms.pop()  # Disque's form of this value is less precise.
        for text in forms:
            assert setting.kind.take(text, None) == value
        again = configured(cwd, conf=f"{setting.directive} {setting.kind.conf(value)}")
        assert again.value(setting) == value and again.origin(setting.name) == "disque.conf line 1"


@pytest.mark.parametrize("setting", GIVABLE, ids=lambda setting: setting.name)
def test_every_setting_can_be_given_in_every_way(cwd: Path, setting: Setting) -> None:
    text = setting.kind.text(configured(cwd).value(setting))
    variable = f"PENSTOCK_{setting.name.upper()}"
    dashed = setting.name.replace("_", "-")
    configs = {
        f"flag --{dashed}": configured(cwd, f"--{dashed}", *setting.kind.words(text)),
        f"flag --{setting.directive}": configured(cwd, f"--{setting.directive}={text}"),
        f"environment {variable}": configured(cwd, environment={variable: text}),
        "penstock.toml line 2": configured(cwd, toml=f"# A comment.\n{setting.name} = '{text}'"),
    }
    for origin, config in configs.items():
        assert config.origin(setting.name) == origin
        assert setting.kind.text(config.value(setting)) == text


# ---- Precedence ------------------------------------------------------------------------------------------------------


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(cwd: Path) -> None:
    environment = {"PENSTOCK_PORT": "2", "PENSTOCK_HZ": "22"}
    config = configured(cwd, "--port", "1", conf="port 3\nhz 33\ndatabases 44", environment=environment)
    assert (config.port, config.hz, config.databases, config.timeout) == (1, 22, 44, 0)
    origins = [config.origin(name) for name in ("port", "hz", "databases", "timeout")]
    assert origins == ["flag --port", "environment PENSTOCK_HZ", "disque.conf line 3", "default"]


def test_the_last_of_two_values_counts(cwd: Path) -> None:
    config = configured(cwd, "--hz", "1", "--hz", "2", conf="port 1\nport 2")
    assert (config.port, config.hz, config.origin("port")) == (2, 2, "disque.conf line 2")


def test_a_bare_server_is_durable_and_one_from_a_disque_conf_is_as_disque(cwd: Path) -> None:
    bare, disque = configured(cwd), configured(cwd, conf="")
    assert (bare.journal, bare.fsync, bare.tcp_keepalive, bare.dir) == (True, "always", 300, cwd / "penstock-data")
    assert (disque.journal, disque.fsync, disque.tcp_keepalive, disque.dir) == (False, "everysec", 0, cwd)
    assert (bare.output_limit, disque.output_limit) == (OutputLimit(64 << 20, 16 << 20, 30), OutputLimit(0, 0, 0))
    assert disque.max_memory == 1 << 30
    assert bare.max_memory == machine.memory_bytes() // 2 >> 20 << 20
    assert bare.bind == disque.bind == ("127.0.0.1",)
    assert bare.file is None and disque.file == cwd / "disque.conf"


def test_toml_has_the_defaults_of_a_bare_server(cwd: Path) -> None:
    config = configured(cwd, toml="port = 1")
    assert config.journal and config.fsync == "always" and not config.is_disque


# ---- Flags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        (["--maxclients", "500"], "max_clients", 500),
        (["--max-clients", "500"], "max_clients", 500),
        (["--MAX_CLIENTS=500"], "max_clients", 500),
        (["--no-journal"], "journal", False),
        (["--no-appendonly"], "journal", False),
        (["--journal"], "journal", True),
        (["--appendonly", "no"], "journal", False),
        (["--fsync", "never"], "fsync", "never"),
        (["--appendfsync", "no"], "fsync", "never"),
        (["--no-appendfsync-on-rewrite", "yes"], "no_appendfsync_on_rewrite", True),
        (["--no-appendfsync-on-rewrite"], "no_appendfsync_on_rewrite", True),
        (["--bind", "127.0.0.1", "::1"], "bind", ("127.0.0.1", "::1")),
        (["--bind", "127.0.0.1 ::1"], "bind", ("127.0.0.1", "::1")),
        (["--slowlog-log-slower-than", "-1"], "slowlog_log_slower_than", -1),
        (["--requirepass", "two words"], "requirepass", "two words"),
        (["--requirepass=--x=y"], "requirepass", "--x=y"),
        (["--logfile", ""], "logfile", ""),
        (["--client-output-buffer-limit", "normal", "1mb", "0", "0"], "output_limit", OutputLimit(1 << 20, 0, 0)),
        (["--rename-command", "A", "", "--rename-command", "B", "c"], "rename_command", {"a": "", "b": "c"}),
    ],
)
def test_flags_as_disque_server_takes_them_and_as_people_expect_them(
    cwd: Path, flags: list[str], name: str, value: object
) -> None:
    assert getattr(configured(cwd, *flags), name) == value


def test_flags_may_come_as_a_mapping(cwd: Path) -> None:
    flags: Sequence[str] | Mapping[str, str] = {"port": "7712", "bind": "127.0.0.1 ::1"}
    config = load(None, flags, {}, cwd)
    assert (config.port, config.bind) == (7712, ("127.0.0.1", "::1"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--maxclient", "5"], "there is no flag '--maxclient'; did you mean --maxclients?"),
        (["--qqq"], "there is no flag '--qqq'"),
        (["--no-port"], "there is no flag '--no-port'"),
        (["--port"], "flag --port: port must be one value: a whole number from 0 to 65535, not ''"),
        (["--port", "1", "2"], "flag --port: port must be one value: a whole number from 0 to 65535, not '1 2'"),
        (["--no-journal", "yes"], "flag --no-journal: must have no value, not 'yes'"),
        (["port", "7711"], "'port' is not a flag; write settings like --port 7711"),
        (["--include", "x"], "there is no flag '--include'"),
    ],
)
def test_a_wrong_flag_is_explained(cwd: Path, flags: list[str], message: str) -> None:
    assert refused(cwd, *flags).startswith(message)


# ---- The environment -------------------------------------------------------------------------------------------------


def test_the_environment_accepts_directives_and_ignores_other_variables(cwd: Path) -> None:
    environment = {"PENSTOCK_MAXCLIENTS": "5", "PENSTOCK_COMPILE": "0", "PORT": "1"}
    assert configured(cwd, environment=environment).max_clients == 5


def test_a_secret_can_be_in_a_file_that_the_environment_names(cwd: Path) -> None:
    (cwd / "secret").write_text("s3cret\n")
    config = configured(cwd, environment={"PENSTOCK_REQUIREPASS_FILE": str(cwd / "secret")})
    assert config.requirepass == "s3cret" and config.origin("requirepass") == "environment PENSTOCK_REQUIREPASS_FILE"
    with pytest.raises(ConfigError, match=r"PENSTOCK_REQUIREPASS_FILE: .*/nowhere: No such file"):
        configured(cwd, environment={"PENSTOCK_REQUIREPASS_FILE": str(cwd / "nowhere")})


def test_the_environment_may_hold_several_users(cwd: Path) -> None:
    config = configured(cwd, environment={"PENSTOCK_USERS": "a password:1\n\nb password:2"})
    assert list(config.users) == ["a", "b"]


# ---- Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("maxmemory 1k", "max_memory", 1_000),
        ("maxmemory 1KB", "max_memory", 1_024),
        ("maxmemory 3m", "max_memory", 3_000_000),
        ("maxmemory 3Mb", "max_memory", 3 << 20),
        ("maxmemory 2g", "max_memory", 2_000_000_000),
        ("maxmemory 2gb", "max_memory", 2 << 30),
        ("maxmemory 2GiB", "max_memory", 2 << 30),
        ("maxmemory 7b", "max_memory", 7),
        ("unixsocketperm 700", "unixsocketperm", 0o700),
        ("hz 0", "hz", 1),
        ("hz 100000", "hz", 500),
        ("timeout 5m", "timeout", 300),
        ("session-grace 500ms", "session_grace", 0.5),
        ("history off", "history", 0),
        ("history 7d", "history", 7 * 86_400),
        ("LOGLEVEL Warning", "loglevel", "warning"),
        ("tcp-keepalive yes", "tcp_keepalive", 300),
        ("client-output-buffer-limit slave 256mb 64mb 60", "output_limit", OutputLimit(0, 0, 0)),
        ("client-output-buffer-limit normal 1kb 1k 5", "output_limit", OutputLimit(1_024, 1_000, 5)),
        ('requirepass "a \\"b\\" \\x41\\n"', "requirepass", 'a "b" A\n'),
        ("requirepass ''", "requirepass", ""),
        ("tls-cert-file x.pem", "tls_cert_file", Path("x.pem")),
    ],
)
def test_values_have_the_same_meaning_as_in_disque(cwd: Path, line: str, name: str, value: object) -> None:
    wanted = cwd / value if isinstance(value, Path) else value
    assert getattr(configured(cwd, conf=line), name) == wanted


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("port 65536", "port must be a whole number from 0 to 65535, not '65536'"),
        ("port 1_0", "port must be a whole number from 0 to 65535, not '1_0'"),
        ("port ٣", "port must be a whole number from 0 to 65535, not '٣'"),
        (f"port {'9' * 5_000}", f"port must be a whole number from 0 to 65535, not '{'9' * 60}…'"),
        ("port", "port must be one value: a whole number from 0 to 65535, not ''"),
        ("maxclients 0", "maxclients must be a whole number from 1 to 1000000, not '0'"),
        ("maxmemory -1", "maxmemory must be a size of at least 1, like 64mb, or a share"),
        ("maxmemory 0", "maxmemory must be a size of at least 1"),
        ("maxmemory 1xb", "maxmemory must be a size of at least 1"),
        ("maxmemory 99999999999999999tb", "maxmemory must be a size of at least 1"),
        ("max-body 513mb", "max-body must be a size from 0 to 512mb, like 64mb, not '513mb'"),
        ("max-body 50%", "max-body must be a size from 0 to 512mb, like 64mb, not '50%'"),
        ("timeout -1", "timeout must be a time of at least 0, like 30 (seconds), 500ms or 7d, not '-1'"),
        ("history never", "history must be a time of at least 0, like 30 (seconds), 500ms or 7d, or off, not 'never'"),
        ("daemonize true", "daemonize must be yes or no, not 'true'"),
        ("appendfsync sometimes", "appendfsync must be always, everysec or never, not 'sometimes'"),
        ("unixsocketperm 888", "unixsocketperm must be permissions in octal digits, from 0 to 777, not '888'"),
        ("bind " + "::1 " * 17, "bind must be 1 to 16 addresses, separated by spaces, not"),
        ("client-output-buffer-limit normal 1 2", "client-output-buffer-limit must be a hard limit"),
        ("client-output-buffer-limit other 1 2 3", "client-output-buffer-limit must be a hard limit"),
        ("client-output-buffer-limit normal 1 -2 3", "client-output-buffer-limit must be a hard limit"),
        ("rename-command CONFIG", 'rename-command must be a command and its new name, or "" for none'),
        ("logfile a\0b", "logfile must be text of at most 4,096 bytes, without zero bytes, not 'a\\x00b'"),
        ("maxclient 5", "there is no directive 'maxclient'; did you mean maxclients?"),
        ("qqq 5", "there is no directive 'qqq'"),
    ],
)
def test_a_bad_line_is_refused_with_file_line_and_allowed_values(cwd: Path, line: str, message: str) -> None:
    assert refused(cwd, conf=f"# A comment.\n\n{line}\n").startswith(f"disque.conf line 3: {message}")


def test_an_error_never_repeats_a_secret(cwd: Path) -> None:
    for line in (
        f"requirepass {'s3cret' * 100}",
        "user alice password:s3cret password_sha256:s3cret",
        "user a password_scrypt:s3cret",
    ):
        assert "s3cret" not in refused(cwd, conf=line)
    assert "s3cret" not in repr(User("a", "s3cret", "s3cret", "s3cret", frozenset(), ()))


def test_tls_needs_its_files(cwd: Path) -> None:
    for port in ("tls-port", "iproto-tls-port", "iproto15-tls-port", "http-tls-port"):
        assert refused(cwd, f"--{port}", "7713") == f"flag --{port}: {port} also needs tls-cert-file and tls-key-file"
    pair = ["--tls-cert-file", "c.pem", "--tls-key-file", "/k.pem"]
    config = configured(cwd, "--tls-port", "7713", *pair)
    assert (config.tls_cert_file, config.tls_key_file) == (cwd / "c.pem", Path("/k.pem"))
    assert "also needs tls-ca-cert-file" in refused(cwd, "--tls-auth-clients", "yes")


def test_dir_is_where_the_server_was_started_and_logs_are_in_it(cwd: Path) -> None:
    config = configured(cwd, conf="logfile x.log\ndir sub/../data")
    assert config.dir == cwd / "data" and config.within_dir(config.logfile) == cwd / "data" / "x.log"
    assert config.within_dir("/var/log/x") == Path("/var/log/x")


# ---- Users -----------------------------------------------------------------------------------------------------------


def test_users_are_the_same_in_both_forms(cwd: Path) -> None:
    conf = f'user alice "password:two words" commands:read,admin tubes:mail.*,q?\nuser bob password_sha256:{DIGEST}'
    toml = f"""
        [users.alice]
        password = "two words"
        commands = ["read", "admin"]
        tubes = ["mail.*", "q?"]
        [users.bob]
        password_sha256 = "{DIGEST.upper()}"
    """
    alice = User("alice", "two words", "", "", frozenset({"read", "admin"}), (b"mail.*", b"q?"))
    bob = User("bob", "", DIGEST, "", frozenset({"read", "write"}), (b"*",))
    assert configured(cwd, conf=conf).users == configured(cwd, toml=toml).users == {"alice": alice, "bob": bob}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("user", "must be a name, then password:…"),
        ("user alice", "must be configured with one of these: password, password_sha256 or password_scrypt"),
        (
            f"user alice password:x password_sha256:{DIGEST}",
            "must be configured with one of these: password, password_sha256 or password_scrypt",
        ),
        (
            "user alice password_scrypt:scrypt$3$8$5$c2FsdHNhbHQ$QUFB",
            "must be configured with a password_scrypt of the form scrypt$N$R$P$SALT$HASH",
        ),
        ("user alice password_sha256:abc", "must be configured with a password_sha256 of 64 hex digits"),
        (
            "user alice password:x commands:read,all",
            "must be configured with commands of these classes: read, write, admin, debug",
        ),
        (
            "user alice password:x colour:red",
            "must be configured with these fields only: password, password_sha256, password_scrypt, commands, tubes",
        ),
        ("user alice password", "must be a name, then password:…"),
        ("user alice password:x password:y", "must be a name, then password:…"),
        (f"user alice password:x tubes:{'q,' * 10_000}q", "must be configured with at most 10,000 tube patterns"),
        ("user alice password:x tubes:", "must be configured with one or more tube patterns, none of them empty"),
        (
            "user alice password:x tubes:mail.*,",
            "must be configured with one or more tube patterns, none of them empty",
        ),
        ('user "a b" password:x', "must be configured with names of 1 to 64 characters without spaces"),
    ],
)
def test_a_bad_user_is_explained(cwd: Path, line: str, message: str) -> None:
    assert message in refused(cwd, conf=line)


@pytest.mark.parametrize(
    "toml",
    [
        "users = 1",
        "users.alice = 1",
        "users.alice.password = 1",
        "[users.alice]\npassword = 'x'\ntubes = [1]",
        "[[users.alice]]\npassword = 'x'",
        "rename_command = 'x'",
        "[rename_command]\nconfig = 1",
    ],
)
def test_a_table_of_the_wrong_shape_is_explained(cwd: Path, toml: str) -> None:
    assert " must be " in refused(cwd, toml=toml)


# ---- CONFIG GET and SET ----------------------------------------------------------------------------------------------


def test_config_get_answers_in_disques_words_and_order(cwd: Path) -> None:
    config = configured(cwd, "--fsync", "never", "--requirepass", "s3cret", conf="maxmemory 2mb\nbind a b\ntimeout 5m")
    shown = dict(config.matching("*"))
    assert tuple(shown)[: len(DISQUE_ORDER)] == DISQUE_ORDER
    assert shown["requirepass"] == "***", "secrets are never shown"
    assert shown["appendfsync"] == "no" and shown["appendonly"] == "no" and shown["maxmemory"] == "2097152"
    assert shown["bind"] == "a b" and shown["timeout"] == "300" and shown["tcp-keepalive"] == "no"
    assert shown["client-output-buffer-limit"] == "normal 0 0 0" and shown["dir"] == str(cwd)
    assert shown["max-body"] == "67108864" and shown["history"] == "604800"
    assert set(shown) == {setting.directive for setting in GIVABLE}
    assert config.matching("p[io]*") == [("pidfile", "/var/run/disque.pid"), ("port", "7711")]
    assert config.matching("nothing") == config.matching("") == config.matching("*" * 10_000) == []


def test_config_set_changes_settings_that_can_change(cwd: Path) -> None:
    config = configured(cwd)
    assert config.change("MaxClients", "77").name == "max_clients"
    config.change("appendfsync", "no")
    config.change("client-output-buffer-limit", "normal 1 2 3 slave 4 5 6")
    config.change("max-body", "1mb")
    assert (config.max_clients, config.fsync, config.output_limit) == (77, "never", OutputLimit(1, 2, 3))
    assert config.max_body == 1 << 20 and config.origin("max_body") == "CONFIG SET"


@pytest.mark.parametrize(
    "directive", ["port", "dir", "bind", "user", "rename-command", "include", "qqq", "", "x" * 100_000]
)
def test_config_set_refuses_settings_that_cannot_change(cwd: Path, directive: str) -> None:
    with pytest.raises(UnknownSetting) as caught:
        configured(cwd).change(directive, "1")
    assert caught.value.directive == directive and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("maxclients", "0"),
        ("maxclients", ""),
        ("maxmemory", "-1"),
        ("appendonly", "maybe"),
        ("client-output-buffer-limit", "normal 1 2"),
        ("client-output-buffer-limit", 'normal "1 2 3'),
        ("client-output-buffer-limit", "normal 1 2 3 " * 100_000),
        ("requirepass", "x" * 513),
    ],
)
def test_config_set_of_a_bad_value_changes_nothing(cwd: Path, directive: str, text: str) -> None:
    config = configured(cwd)
    before = config.matching("*")
    with pytest.raises(BadValue) as caught:
        config.change(directive, text)
    assert (caught.value.directive, caught.value.text) == (directive, text)
    assert config.matching("*") == before and config.origin("max_clients") == "default"


def test_values_that_differ_from_the_default_are_listed(cwd: Path) -> None:
    config = configured(cwd, conf="port 7711\nmaxmemory 1gb\ndir .\nhz 11")
    assert [setting.name for setting in SETTINGS if not config.is_default(setting)] == ["hz"]
