"""Who may read /metrics: the only rule about it.

    requests from this machine   allowed
    users or a password          allowed with a token (`Authorization: Bearer`), or with a name and password (`Basic`),
                                 if the user may run `read` commands on all tubes
    neither of them              as RESP clients: allowed over TLS, or if protected-mode is off

Wrong passwords are counted together with those of other clients. While an address has sent too many, its requests with
passwords are refused without comparing them.
"""

from __future__ import annotations

import base64
import binascii

from penstock.core.errors import BadToken
from penstock.node.caller import READ
from penstock.server.net.access import DEFAULT_USER, Account
from penstock.server.net.http import Answer, HttpRequest
from penstock.server.net.logins import source_of
from penstock.server.server import Server

_CHALLENGE = 'WWW-Authenticate: Basic realm="penstock metrics", charset="UTF-8"\r\n'


def metrics_refusal(server: Server, request: HttpRequest) -> Answer | None:
    """Return the response to a request that may not read the metrics, or None if it may."""
    if request.is_local:
        return None
    if not server.accounts.any:
        if request.is_encrypted or not server.config.protected_mode:
            return None
        return Answer(403, "without users, only this machine can read the metrics; set requirepass, or add a user\n")
    scheme, _, secret = request.header(b"authorization").partition(b" ")
    if not secret:
        return _unauthorized("a token, or a user and password, are required")
    if scheme.lower() == b"bearer":
        try:
            account = _account_of_token(server, secret.strip())
        except BadToken as reason:
            return _unauthorized(str(reason))
    elif server.logins.is_delayed(source_of(request.address)):
        return Answer(429, "too many wrong passwords from this address; try again in a minute\n")
    else:
        account = _account(server, secret.strip()) if scheme.lower() == b"basic" else None
        if account is None:
            server.logins.add_wrong(request.address)
    if account is None:
        return _unauthorized("wrong token, user or password")
    if not account.groups & READ or not account.tubes.any_tube:
        return Answer(403, "this user may not read the metrics, because it may not read all tubes\n")
    return None


def _unauthorized(sentence: str) -> Answer:
    return Answer(401, f"{sentence}\n", headers=_CHALLENGE)


def _account_of_token(server: Server, text: bytes) -> Account | None:
    token = server.tokens.read(text)
    return None if token is None else server.tokens.account(token, server.turn.clock.now())


def _account(server: Server, secret: bytes) -> Account | None:
    """Return the user whose name and password are in the credentials of Basic, or None."""
    try:
        name, _, password = base64.b64decode(secret, validate=True).partition(b":")
    except binascii.Error:
        return None
    return server.accounts.log_in(name.decode("utf-8", "replace") or DEFAULT_USER, password)
