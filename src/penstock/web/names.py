"""Names, ids and bodies in JSON and in URLs.

A name of a tube can be any bytes. In JSON it is text, in which a byte that is not UTF-8 is a lone surrogate ("\\udcff"
for FF), as in Python's `surrogateescape`. In a path such a byte is %XX.

The id of a job is the text of 40 characters that every other interface uses. It can contain "/" and "+". In a path "_"
and "-" may take their places, so that it needs no escapes. `job_path` returns this form.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final
from urllib.parse import quote

from penstock.core.errors import BadName
from penstock.core.ids import LONG_ID_BYTES, is_long
from penstock.core.job import BODY_BYTES, BODY_JSON, BODY_MSGPACK, BODY_TEXT
from penstock.options import EncodedBody
from penstock.web.json_text import JsonText, encode, valid_json
from penstock.web.refusals import bad_request

KIND_NAMES: Final = {BODY_BYTES: "bytes", BODY_TEXT: "text", BODY_JSON: "json", BODY_MSGPACK: "msgpack"}
_KINDS: Final = {b"bytes": "bytes", b"text": "text", b"json": "json", b"msgpack": "msgpack"}

_DIGITS_AT: Final = slice(11, 35)
_TO_PATH: Final = str.maketrans("+/", "-_")
_FROM_PATH: Final = bytes.maketrans(b"-_", b"+/")


def text_of(raw: bytes) -> str:
    """Return bytes as text of a response."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text of a request. It is the inverse of `text_of`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadName("a name has a surrogate that stands for no byte") from None


def tube_path(name: bytes) -> str:
    """Return the path of a tube below /api/v1."""
    # "." and ".." would be removed from the URL by clients.
    shown = quote(name, safe="~!$&'()*,;=:@")
    return f"/tubes/{shown.replace('.', '%2E') if shown in ('.', '..') else shown}"


def job_path(id: str) -> str:
    """Return the path of a job below /api/v1."""
    return f"/jobs/{id[:11]}{id[_DIGITS_AT].translate(_TO_PATH)}{id[35:]}"


def id_of(raw: bytes) -> bytes:
    """Return the id of a job in the form of the node. The id comes from a path or a request."""
    if len(raw) == LONG_ID_BYTES and is_long(raw):
        return raw[:11] + raw[_DIGITS_AT].translate(_FROM_PATH) + raw[35:]
    return raw


# ---- Bodies ----------------------------------------------------------------------------------------------------------


def encode_body(body: JsonText, form: str | None) -> EncodedBody:
    """Return the body of a put. `body` is the JSON text of the field, and `form` is the field `as`.

    By default, a string is text, and everything else is JSON.
    """
    is_string = body.startswith('"')
    if form == "json" or (form is None and not is_string):
        return EncodedBody(body.encode(), BODY_JSON)
    if not is_string:
        raise bad_request(f"body must be a string, because as is {form}")
    import json

    text = json.loads(body)
    if form in (None, "text"):
        try:
            return EncodedBody(text.encode(), BODY_TEXT)
        except UnicodeEncodeError:
            raise bad_request("body has a lone surrogate, which text cannot contain; use as=base64") from None
    try:
        return EncodedBody(base64.b64decode(text, validate=True), BODY_BYTES if form == "base64" else BODY_MSGPACK)
    except (binascii.Error, ValueError):
        raise bad_request("body is not base64") from None


def body_fields(raw: bytes | None, kind: bytes) -> dict[str, Any]:
    """Return the fields of a response for a body: `body`, `as` (its form in this response) and `kind` (in the queue).

    JSON is inserted as it was put. Bytes that are not UTF-8, and msgpack, are base64.
    """
    name = _KINDS.get(kind, "bytes")
    if raw is None:
        return {"body": None, "as": "damaged", "kind": name}
    if name != "msgpack":
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            pass
        else:
            if name == "json" and valid_json(text):
                return {"body": JsonText(text), "as": "json", "kind": name}
            return {"body": text, "as": "text", "kind": name}
    return {"body": base64.b64encode(raw).decode("ascii"), "as": "base64", "kind": name}


def as_json_text(fields: dict[str, Any]) -> JsonText:
    """Return fields that do not change any more as JSON."""
    return JsonText(encode(fields))
