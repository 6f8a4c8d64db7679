"""The server's configuration: the value and the origin of every setting, and how it is loaded, changed and rewritten.

    flags  >  environment (PENSTOCK_...)  >  file (TOML or Disque's form)  >  defaults

`settings.py` has the table of settings. Each value is an attribute of `Config` with the setting's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from penstock.core.tube_patterns import Glob
from penstock.server.config import flags as command_line
from penstock.server.config import text_file, toml
from penstock.server.config.disque_conf import ConfFile, Rewrite
from penstock.server.config.disque_conf import rewritten as rewritten_conf
from penstock.server.config.kinds import MASK, Collected, OutputLimit, Refused, WholeNumber
from penstock.server.config.settings import (
    DISQUE_ORDER,
    SETTINGS,
    BadValue,
    ConfigError,
    Setting,
    UnknownSetting,
    find,
    quoted_input,
    suggestion,
)
from penstock.server.config.users import User
from penstock.wire.quoting import printable

__all__ = ["BadValue", "Config", "ConfigError", "OutputLimit", "Setting", "UnknownSetting", "User", "load"]

# No directive is this long, so a longer pattern is a mistake or an attack.
PATTERN_CHARACTERS_MAX: Final = 256


class Source(Enum):
    """The source of a value. A source that is listed later overrides an earlier one."""

    DEFAULT = auto()
    FILE = auto()
    INCLUDED = auto()  # From a file that the file includes.
    ENVIRONMENT = auto()
    FLAG = auto()
    CHANGED = auto()  # By CONFIG SET.


@dataclass(frozen=True)
class Origin:
    """The source of a value, and a text that describes it, such as "flag --port"."""

    source: Source
    place: str


class Config:
    """The values of all settings. They start at their defaults."""

    # Listening.
    port: int
    iproto_port: int
    iproto15_port: int
    bind: tuple[str, ...]
    protected_mode: bool
    tcp_backlog: int
    unixsocket: str
    unixsocketperm: int
    http_port: int
    dashboard_port: int
    http_bind: tuple[str, ...]
    http_hosts: tuple[str, ...]
    metrics_tubes: int
    # TLS.
    tls_port: int
    iproto_tls_port: int
    iproto15_tls_port: int
    http_tls_port: int
    tls_cert_file: Path | None
    tls_key_file: Path | None
    tls_ca_cert_file: Path | None
    tls_auth_clients: str
    # Access control.
    requirepass: str
    users: dict[str, User]
    rename_command: dict[str, str]
    debug_commands: bool
    drivers: dict[str, str]
    # Clients of Tarantool.
    queue15_pri_mode: str
    queue_in_replicaset: bool
    xqueue: dict[str, dict[str, Any]]
    # Client limits.
    max_clients: int
    timeout: float
    tcp_keepalive: float
    auth_timeout: float
    progress_timeout: float
    session_grace: float
    max_body: int
    max_query_buffer: int
    output_limit: OutputLimit
    # Memory.
    max_memory: int
    max_memory_policy: str
    max_memory_samples: int
    # Journal.
    dir: Path
    journal: bool
    fsync: str
    history: float
    history_bytes: int
    history_bodies: bool
    aof_enqueue_jobs_once: bool
    aof_load_truncated: bool
    appendfilename: str
    no_appendfsync_on_rewrite: bool
    auto_aof_rewrite_percentage: int
    auto_aof_rewrite_min_size: int
    aof_rewrite_incremental_fsync: bool
    # Log and process.
    loglevel: str
    logfile: str
    log_format: str
    trace_log: str
    daemonize: bool
    pidfile: str
    slowlog_log_slower_than: int
    slowlog_max_len: int
    latency_monitor_threshold: int
    linger: int
    syslog_enabled: bool
    syslog_ident: str
    syslog_facility: str
    databases: int
    hz: int
    activerehashing: bool
    watchdog_period: int
    # Cluster.
    cluster_port: int
    cluster_secret: str
    tls_cluster: bool
    tls_cluster_ca_cert_file: Path | None
    tls_cluster_cert_file: Path | None
    tls_cluster_key_file: Path | None
    tls_cluster_name: str
    cluster_announce_ip: str
    cluster_announce_port: int
    cluster_announce_bus_port: int
    cluster_node_timeout: int
    cluster_config_file: str

    def __init__(self, cwd: Path, file: Path | None = None, is_disque: bool = False) -> None:
        self.file = file  # The absolute path of the configuration file. CONFIG REWRITE writes it.
        self.is_disque = is_disque  # The file has Disque's form, so the defaults are Disque's.
        self._cwd = cwd
        self._origins: dict[str, Origin] = {}
        for setting in SETTINGS:
            self._keep(setting, self._default(setting), Origin(Source.DEFAULT, "default"))

    # ---- Values ------------------------------------------------------------------------------------------------------

    def value(self, setting: Setting) -> Any:
        return getattr(self, setting.name)

    def origin(self, name: str) -> str:
        """Return where a value comes from, as text: "flag --port", "disque.conf line 12", "default"."""
        return self._origins[name].place

    def secrets_on_command_line(self) -> list[Setting]:
        """Return the secrets that were given as flags. Other users of the machine can see them in the process list."""
        return [
            setting
            for setting in SETTINGS
            if setting.secret and self._origins[setting.name].source is Source.FLAG and self.value(setting)
        ]

    def is_default(self, setting: Setting) -> bool:
        return bool(self.value(setting) == self._default(setting))

    def within_dir(self, path: str) -> Path:
        """Return the path of `logfile`, `pidfile` or `unixsocket`. Relative paths start in `dir`, as in Disque."""
        return self.dir / path

    def tls_cluster_settings(self) -> tuple[str, str, str]:
        """Return the names of the three settings for TLS on the bus: certificate, key, and authority of the peers."""
        has_own = self.tls_cluster_cert_file or self.tls_cluster_key_file
        own = ("tls_cluster_cert_file", "tls_cluster_key_file") if has_own else ("tls_cert_file", "tls_key_file")
        return *own, "tls_cluster_ca_cert_file"

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return the reply of CONFIG GET: the directives that match a pattern, and their values in Disque's form."""
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            return []
        glob = Glob(pattern)
        return [
            (setting.directive, self._config_get_value(setting))
            for setting in _IN_CONFIG_GET
            if glob.matches(setting.directive)
        ]

    def _config_get_value(self, setting: Setting) -> str:
        kind = setting.kind
        return kind.masked(self.value(setting)) if setting.secret else kind.disque(self.value(setting))

    # ---- Changes -----------------------------------------------------------------------------------------------------

    def change(self, directive: str, text: str) -> Setting:
        """Run CONFIG SET and return the changed setting. Raise UnknownSetting if it cannot be changed at run time."""
        setting = find(directive)
        if setting is None or not setting.changeable:
            hint = "it can only be set at the start" if setting else f"there is no such setting{suggestion(directive)}"
            raise UnknownSetting(directive, f"CONFIG SET {quoted_input(directive)}: {hint}")
        if setting.secret and text == MASK:
            # A script that restores the reply of CONFIG GET would replace the password by the mask.
            raise BadValue(directive, text, f"CONFIG SET {directive}: {MASK} is what CONFIG GET shows, not the value")
        self.give(setting, directive, text, Origin(Source.CHANGED, "CONFIG SET"))
        return setting

    def restorer(self, directive: str) -> Callable[[], None]:
        """Return a function that restores the present value and origin of a setting, to undo a failed change."""
        setting = find(directive)
        if setting is None:
            return lambda: None
        value, origin = self.value(setting), self._origins[setting.name]
        return lambda: self._keep(setting, value, origin)

    def give(self, setting: Setting, word: str, given: object, origin: Origin) -> None:
        """Set the value of a setting. `word` is the name that the user used for it, for errors.

        `given` is a value in any form that `Kind.take` accepts: words, one text, or a TOML value.
        """
        if setting.only_in_file and origin.source not in (Source.FILE, Source.INCLUDED):
            raise ConfigError(f"{origin.place}: {word} names code that the server runs; set it in the config file")
        try:
            value = setting.kind.take(given, self.value(setting))
        except Refused as refused:
            text = " ".join(map(str, given)) if isinstance(given, list) else str(given)
            but = "" if setting.secret else f", not {quoted_input(text)}"
            raise BadValue(word, text, f"{origin.place}: {word} must be {refused}{but}") from None
        self._keep(setting, value, origin)

    def _keep(self, setting: Setting, value: object, origin: Origin) -> None:
        setattr(self, setting.name, self._absolute(value))
        self._origins[setting.name] = origin

    def _absolute(self, value: object) -> object:
        return Path(os.path.abspath(self._cwd / value)) if isinstance(value, Path) else value

    def _default(self, setting: Setting) -> object:
        has_own = self.is_disque and setting.disque_default is not None
        return self._absolute(setting.kind.initial(str(setting.disque_default if has_own else setting.default)))

    # ---- CONFIG REWRITE ----------------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """Run CONFIG REWRITE: write the changed settings to the file, and keep everything else in it.

        As in Disque, values of flags are written, too. Values of the environment are not, so that a password in it does
        not end up in a file. Values of included files are not written either.
        """
        if self.file is None:
            raise ConfigError("The server is running without a config file")
        try:
            text = text_file.read(self.file, str(self.file)) if self.file.exists() else ""
            rewritten = rewritten_conf if self.is_disque else toml.rewritten
            text_file.replace(self.file, rewritten(text, self._rewrites()))
        except OSError as error:
            raise ConfigError(f"{self.file}: {error.strerror}") from None

    def _rewrites(self) -> dict[str, Rewrite]:
        found: dict[str, Rewrite] = {}
        for setting in SETTINGS:
            source = self._origins[setting.name].source
            # Disque always writes `dir` as an absolute path, because the next start may be in another directory.
            needed = source in (Source.FLAG, Source.CHANGED) or (
                self.is_disque and setting.name == "dir" and source is not Source.ENVIRONMENT
            )
            as_before = source is Source.FILE and self.is_disque
            if (needed or as_before) and not isinstance(setting.kind, Collected):
                found[setting.name] = Rewrite(self._line(setting), needed)
        return found

    def _line(self, setting: Setting) -> str:
        value = self.value(setting)
        if self.is_disque:
            return f"{setting.directive} {setting.kind.conf(value)}"
        if isinstance(value, bool):
            return "true" if value else "false"
        text = setting.kind.text(value)
        return text if isinstance(setting.kind, WholeNumber) else toml.quoted(text)


_IN_CONFIG_GET: Final = sorted(
    (setting for setting in SETTINGS if setting.in_config_get),
    key=lambda setting: [*DISQUE_ORDER, setting.directive].index(setting.directive),
)


# ---- Loading ---------------------------------------------------------------------------------------------------------


def load(
    file: str | None, flags: Sequence[str] | Mapping[str, str], environment: Mapping[str, str], cwd: Path
) -> Config:
    """Return the configuration of a server. `file` is a path, "-" for standard input, or None.

    Relative paths start in `cwd`, the directory in which the server was started.
    """
    config = Config(cwd) if file is None else _from_file(file, cwd)
    _take_environment(config, environment, cwd)
    for flag in command_line.read(flags):
        # One word may hold several values: --bind "127.0.0.1 ::1".
        given = flag.words[0] if len(flag.words) == 1 else flag.words
        config.give(flag.setting, flag.word, given, Origin(Source.FLAG, flag.place))
    _check_together(config)
    return config


def _from_file(file: str, cwd: Path) -> Config:
    if file == text_file.STANDARD_INPUT:
        label, path = "standard input", None
        text = text_file.read_standard_input(label)
    else:
        label, path = printable(file), Path(os.path.abspath(cwd / file))
        text = text_file.read(path, label)
    if file.endswith(".toml") or toml.is_toml(text):
        config = Config(cwd, path)
        _take_toml(config, text, label)
    else:
        config = Config(cwd, path, is_disque=True)
        _take_conf(config, text, ConfFile(path or cwd / label, label))
    return config


def _take_conf(config: Config, text: str, file: ConfFile) -> None:
    for line in file.lines(text):
        setting = _found(line.directive, line.place, "directive")
        origin = Origin(Source.INCLUDED if line.included else Source.FILE, line.place)
        config.give(setting, line.directive, line.words, origin)


def _take_toml(config: Config, text: str, label: str) -> None:
    for entry in toml.entries(text, label):
        setting = _found(entry.key, entry.place, "setting")
        config.give(setting, entry.key, entry.value, Origin(Source.FILE, entry.place))


def _found(word: str, place: str, what: str) -> Setting:
    setting = find(word)
    if setting is None:
        raise UnknownSetting(word, f"{place}: there is no {what} {quoted_input(word)}{suggestion(word)}")
    return setting


def _take_environment(config: Config, environment: Mapping[str, str], cwd: Path) -> None:
    for setting in SETTINGS:
        for word in dict.fromkeys([setting.directive, setting.name]):  # If both are set, the name wins.
            variable = "PENSTOCK_" + word.upper().replace("-", "_")
            text = environment.get(variable)
            if text is None and setting.secret and f"{variable}_FILE" in environment:
                # Container platforms provide secrets as files.
                variable += "_FILE"
                path = cwd / environment[variable]
                text = text_file.read(path, f"environment {variable}: {path}").rstrip("\r\n")
            if text is not None:
                config.give(setting, word, text, Origin(Source.ENVIRONMENT, f"environment {variable}"))


def _check_together(config: Config) -> None:
    """Raise ConfigError if a setting needs another setting that is missing."""
    for name in ("tls_port", "iproto_tls_port", "iproto15_tls_port", "http_tls_port"):
        if getattr(config, name) and not (config.tls_cert_file and config.tls_key_file):
            directive = name.replace("_", "-")
            raise ConfigError(f"{config.origin(name)}: {directive} also needs tls-cert-file and tls-key-file")
    if config.tls_auth_clients != "no" and not config.tls_ca_cert_file:
        raise ConfigError(f"{config.origin('tls_auth_clients')}: tls-auth-clients also needs tls-ca-cert-file")
    if config.tls_cluster and not all(getattr(config, name) for name in config.tls_cluster_settings()):
        raise ConfigError(
            f"{config.origin('tls_cluster')}: tls-cluster needs tls-cluster-ca-cert-file (an authority that signs "
            "certificates of nodes only), and tls-cluster-cert-file and tls-cluster-key-file, or tls-cert-file and "
            "tls-key-file"
        )
