"""Logins: when a password is compared, and which refusals are logged.

An address that sends many wrong passwords is delayed. Each later login from it, right or wrong, waits a second before
the password is compared, so the time of the reply tells a guesser nothing. The number of logins that wait is
limited per address, so more connections do not mean more guesses. Both protocols use the same delay and the same limit.

If the user has a scrypt hash, the password is compared in a thread, while the loop serves other clients. The number of
threads and of waiting comparisons is limited. Logins with the same user and password share one comparison, so many
workers of a program that start together need only one.

A token (`tokens.py`) is neither delayed nor counted, because its signature cannot be guessed.

`access.py` has the users and compares the passwords.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from penstock.core.errors import BadToken
from penstock.node.caller import Caller
from penstock.node.turn import SuspendedCommand, Turn
from penstock.server.net.access import Account, SlowCheck
from penstock.server.net.connection import Connection

_log = logging.getLogger("penstock")

# After this many wrong passwords within the window, all logins from the address are delayed.
WRONG_MAX: Final = 10
_WRONG_WINDOW_S: Final = 60.0
DELAY_S: Final = 1.0

# This many logins of an address wait at a time. So an address has this many guesses per second.
WAITING_MAX: Final = 16
_TOO_MANY: Final = "too many logins from this address are waiting; try again in a second"

# At most this many threads compare scrypt hashes. Each needs 16 MB and a processor.
_THREADS_MAX: Final = 4

# This many comparisons wait or run at a time, so a login does not wait longer than the setting `auth-timeout`.
_CHECKS_MAX: Final = 64

# Limits the table of addresses to a few megabytes. The address with the oldest last wrong password is dropped.
_ADDRESSES_MAX: Final = 10_000

# Wrong passwords are logged at most this often.
_LOG_INTERVAL_S: Final = 1.0

# A customer of an internet provider usually has a whole IPv6 network of this size.
_IPV6_PREFIX_BITS: Final = 64


class Login:
    """One attempt of a client to log in. Each protocol has its own subclass."""

    def account(self) -> Account | None:
        """Return the account whose password was given, or None if the password is wrong.

        This is called if `slow_check` has returned None.
        """
        raise NotImplementedError

    def slow_check(self) -> SlowCheck | None:
        """Return the comparison that has to run in a thread, or None if `account` returns its result at once."""
        return None

    def account_of_token(self, now: int) -> Account | None:
        """Return the account of the token that was given in place of a password, or None if none was given.

        Raise BadToken if the token is expired or revoked.
        """
        return None

    def accept(self) -> None:
        """Write the reply for a client that is now logged in."""
        raise NotImplementedError

    def refuse(self) -> None:
        """Write the reply for a client whose password is wrong."""
        raise NotImplementedError

    def refuse_token(self, reason: BadToken) -> None:
        """Write the reply for a client whose token is expired or revoked. Only RESP has tokens."""
        raise NotImplementedError

    def refuse_as_busy(self, sentence: str) -> None:
        """Write the error `sentence`, because too many logins from this address wait. The password was not compared."""
        raise NotImplementedError


class Logins:
    """The logins of all clients of a server, and the wrong passwords of each address."""

    def __init__(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn = turn
        self._loop = loop
        self._wrong: dict[str, deque[float]] = {}  # The times of the last WRONG_MAX wrong passwords, by source.
        self._waiting: dict[str, int] = {}  # The number of delayed logins, by source. No entry has the value 0.
        self._logged_at = -_LOG_INTERVAL_S
        self._not_logged = 0
        self._threads = ThreadPoolExecutor(max(1, min(_THREADS_MAX, (os.cpu_count() or 1) // 2)), "penstock-logins")
        self._checks: dict[tuple[str, bytes], _RunningCheck] = {}  # Running and waiting ones, by the key of SlowCheck.

    def close(self) -> None:
        """Drop all comparisons that have not begun, because the server stops."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def begin(self, caller: Connection, login: Login) -> None:
        """Compare the password of a login and reply. After many wrong passwords from its address, do so after a delay.

        A client of another node is refused. It has logged in there. Only that node knows its true address, so this node
        could not count wrong passwords by address.
        """
        if caller.entry_node:
            login.refuse()
            return
        try:
            account = login.account_of_token(self._turn.now)
        except BadToken as reason:
            login.refuse_token(reason)
            return
        source = source_of(caller.address)
        if account is not None:
            self._accept(caller, login, account)
        elif not self.is_delayed(source):
            self.compare(caller, login)
        elif self._waiting.get(source, 0) >= WAITING_MAX:
            login.refuse_as_busy(_TOO_MANY)
        else:
            self._waiting[source] = self._waiting.get(source, 0) + 1
            delayed = _DelayedLogin(self, login, source)
            delayed.timer = self._loop.call_later(DELAY_S, self._wake, caller, delayed)
            self._turn.park(caller, delayed)

    def compare(self, caller: Connection, login: Login) -> bool:
        """Compare the password of a login, log the client in if it is right, and reply.

        Return False if the client waits for the comparison. It is then suspended until the comparison has ended.
        """
        check = login.slow_check()
        if check is not None:
            return not self._start(caller, login, check)
        self.finish(caller, login, login.account())
        return True

    def _start(self, caller: Connection, login: Login, check: SlowCheck) -> bool:
        """Start the comparison in a thread, or wait for the one that runs. Return False if the login was refused."""
        running = self._checks.get(check.key)
        if running is None:
            source = source_of(caller.address)
            if len(self._checks) >= _CHECKS_MAX or self._waiting.get(source, 0) >= WAITING_MAX:
                login.refuse_as_busy(_TOO_MANY)
                return False
            self._waiting[source] = self._waiting.get(source, 0) + 1
            running = self._checks[check.key] = _RunningCheck(source)
            future = self._loop.run_in_executor(self._threads, check.run)
            future.add_done_callback(partial(self._checked, check, running))
        suspended = _SuspendedLogin(self, login, running)
        running.logins[suspended] = caller
        self._turn.park(caller, suspended)
        return True

    def _checked(self, check: SlowCheck, running: _RunningCheck, done: asyncio.Future[bool]) -> None:
        """Continue all logins that waited for a comparison."""
        if done.cancelled():
            return
        del self._checks[check.key]
        self.leave(running.source)
        error = done.exception()
        if error is not None:
            _log.error("password not compared, so the login is refused: error=%s", error)
        running.account = check.account(error is None and done.result())
        for suspended, caller in list(running.logins.items()):
            self._turn.resume(caller, suspended)

    def finish(self, caller: Connection, login: Login, account: Account | None) -> None:
        """Log the client in as `account`, or refuse it if `account` is None because the password is wrong."""
        if account is None:
            self.add_wrong(caller.address)
            login.refuse()
        else:
            self._accept(caller, login, account)

    def _accept(self, caller: Connection, login: Login, account: Account) -> None:
        caller.log_in_as(account)
        login.accept()

    def leave(self, source: str) -> None:
        """Record that a delayed login of `source` no longer waits."""
        waiting = self._waiting.pop(source) - 1
        if waiting:
            self._waiting[source] = waiting

    def _wake(self, caller: Connection, delayed: _DelayedLogin) -> None:
        self.leave(delayed.source)
        self._turn.resume(caller, delayed)

    def is_delayed(self, source: str) -> bool:
        """Return whether many wrong passwords came from a source lately: see `source_of`."""
        times = self._wrong.get(source)
        return times is not None and len(times) == WRONG_MAX and times[0] > time.monotonic() - _WRONG_WINDOW_S

    def add_wrong(self, address: str) -> None:
        """Count a wrong password, and log it."""
        now, source = time.monotonic(), source_of(address)
        # Removed and added again, because the oldest entry is the first.
        times = self._wrong.pop(source, None) or deque(maxlen=WRONG_MAX)
        times.append(now)
        self._wrong[source] = times
        if len(self._wrong) > _ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        if now - self._logged_at < _LOG_INTERVAL_S:
            self._not_logged += 1
            return
        _log.warning("wrong password: address=%s not_logged=%d", _host_of(address), self._not_logged)
        self._logged_at, self._not_logged = now, 0


class _DelayedLogin(SuspendedCommand):
    """A login that waits for its delay. Meanwhile the client is busy, so its later commands run afterwards."""

    timer: asyncio.TimerHandle

    def __init__(self, logins: Logins, login: Login, source: str) -> None:
        self.source = source
        self._logins = logins
        self._login = login

    def step(self, caller: Caller, now: int) -> bool:
        assert isinstance(caller, Connection)
        return self._logins.compare(caller, self._login)

    def cancel(self) -> None:
        self.timer.cancel()
        self._logins.leave(self.source)


class _RunningCheck:
    """A comparison that runs or waits for a thread."""

    def __init__(self, source: str) -> None:
        self.source = source  # The address that started it.
        self.logins: dict[_SuspendedLogin, Connection] = {}
        self.account: Account | None = None  # The result.


class _SuspendedLogin(SuspendedCommand):
    """A login that waits for a comparison."""

    def __init__(self, logins: Logins, login: Login, running: _RunningCheck) -> None:
        self._logins = logins
        self._login = login
        self._running = running

    def step(self, caller: Caller, now: int) -> bool:
        assert isinstance(caller, Connection)
        self._logins.finish(caller, self._login, self._running.account)
        return True

    def cancel(self) -> None:
        self._running.logins.pop(self, None)


def source_of(address: str) -> str:
    """Return the group of addresses that share a count of wrong passwords.

    It is an IPv4 address, an IPv6 network, or the path of a Unix socket. An IPv4 client of an IPv6 socket is
    counted by its IPv4 address.
    """
    host = _host_of(address)
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX_BITS), strict=False))


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]
