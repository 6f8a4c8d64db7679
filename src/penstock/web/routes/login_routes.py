"""Sign in with a cookie, sign out, and create tokens."""

from __future__ import annotations

import base64
from typing import Any, Final

from penstock.client.commands import octets
from penstock.web.credentials import BASIC, BY_COOKIE, Credentials, new_cookie, no_cookie
from penstock.web.exchange import Exchange
from penstock.web.refusals import Refused
from penstock.web.route_table import OPEN, READ, Route
from penstock.web.routes.account_routes import CLASSES, ME, who_am_i
from penstock.web.shapes import Items, Record, Text, Time, Whole


async def _log_in(exchange: Exchange) -> dict[str, Any]:
    request = exchange.body
    pair = f"{request['user']}:{request['password']}".encode("utf-8", "surrogatepass")
    if ":" in request["user"]:
        raise Refused("WRONGPASS", "wrong user or password")
    exchange.credentials = Credentials(BASIC, base64.b64encode(pair))
    ttl = exchange.settings.login_ttl_s
    try:
        token = octets(await exchange.ask(b"TOKEN", b"CREATE", b"TTL", b"%d" % ttl, b"NAME", b"dashboard"))
    finally:
        # The next request uses the token, so the connection with the password is not needed.
        await exchange.state.pool.forget(exchange.credentials)
    exchange.cookies.append(new_cookie(token, exchange.settings.path_prefix, ttl, exchange.is_secure))
    exchange.credentials = Credentials(BY_COOKIE, token)
    return await who_am_i(exchange)


async def _log_out(exchange: Exchange) -> None:
    exchange.cookies.append(no_cookie(exchange.settings.path_prefix, exchange.is_secure))
    if exchange.credentials.kind == BY_COOKIE:
        await exchange.state.pool.forget(exchange.credentials)


async def _create_token(exchange: Exchange) -> dict[str, Any]:
    request = exchange.body
    words = [b"TOKEN", b"CREATE"]
    if "ttl" in request:
        words += [b"TTL", b"%dms" % request["ttl"]]
    if "commands" in request:
        words += [b"COMMANDS", ",".join(request["commands"]).encode()]
    if "tubes" in request:
        patterns = [pattern.encode("utf-8", "surrogateescape") for pattern in request["tubes"]]
        if any(b"," in pattern for pattern in patterns):
            raise Refused("BADREQUEST", "a pattern must not contain a comma; write ? in its place")
        words += [b"TUBES", b",".join(patterns)]
    if "name" in request:
        words += [b"NAME", request["name"].encode("utf-8", "surrogatepass")]
    token = octets(await exchange.ask(*words))
    info = await exchange.ask(b"TOKEN", b"INFO", token)
    return {"token": token.decode("ascii"), "expires_ms": info[b"expires"]}


ROUTES: Final = [
    Route(
        method="POST",
        path="/login",
        group="Account",
        summary="Sign in with a user and a password, and get a cookie.",
        about=(
            "The cookie has a token that the server signed. A request with the cookie that changes something needs the "
            "header X-CSRF-Token with the `csrf_token` of this response, which GET /me also returns."
        ),
        handler=_log_in,
        access=OPEN,
        body=Record(
            {
                "user": Text(length=(1, 200), example="ada"),
                "password": Text(length=(1, 512), example="correct horse battery staple"),
            }
        ),
        returns=ME,
        errors=("WRONGPASS", "NOUSERS", "TOOMANY", "BUSY"),
    ),
    Route(
        method="POST",
        path="/logout",
        group="Account",
        summary="Remove the cookie.",
        handler=_log_out,
        access=READ,
        status=204,
        body=Record({}, example={}),
        body_required=False,
        returns=None,
    ),
    Route(
        method="POST",
        path="/tokens",
        group="Account",
        summary="Create a token with limited rights, for use in place of the password.",
        about="Send it as `Authorization: Bearer TOKEN`. A changed password revokes all tokens of the user.",
        handler=_create_token,
        access=READ,
        status=201,
        body=Record(
            {},
            {
                "ttl": Time("How long it is valid. Default: 12 h.", example="30d", most_s=366 * 86_400),
                "commands": Items(
                    Text(choices=CLASSES), "Limit it to these classes of commands.", least=1, most=4, example=["read"]
                ),
                "tubes": Items(
                    Text(length=(1, 256)), "Limit it to tubes that match one of these patterns.", least=1, most=32
                ),
                "name": Text("A name, for lists of clients.", length=(1, 64), example="grafana"),
            },
        ),
        body_required=False,
        returns=Record(
            {
                "token": Text("Keep it secret. It is not stored and not shown again.", example="pst1.eyJ1c…"),
                "expires_ms": Whole("When it expires. Milliseconds since 1970.", example=1_797_623_234_335),
            }
        ),
        errors=("NOUSERS", "RANGE"),
    ),
]
