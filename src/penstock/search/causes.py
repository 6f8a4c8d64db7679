"""The cause of a failure: the part of its reason that jobs with the same fault share.

Workers write reasons as free text. The rule for grouping them is here and nowhere else:

1. White space is collapsed.
2. A prefix that counts attempts is removed: "failed 3 times, at last: 404" and "404" have the cause "404".
3. Ids are replaced with "…": UUIDs, numbers with five or more digits, and hexadecimal numbers with eight or more.
   "order 1048576 not found" and "order 1048577 not found" have one cause. Shorter numbers stay, because "404" and "503"
   are different causes.
"""

from __future__ import annotations

import re
from typing import Final

NO_REASON: Final = "no reason given"

_ATTEMPTS: Final = re.compile(
    r"(?:failed|fails|gave up|given up|giving up)(?: after)? \d+ (?:times?|tries|try|attempts?|retries|deliveries)"
    r"[,:;.]? (?:(?:at last|finally|last error|the last error was|because of)[:,]? )?(?=\S)",
    re.IGNORECASE,
)
_IDS: Final = re.compile(
    r"\b(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|0x[0-9a-f]{8,}"
    # Eight letters from a to f can be a word, so one digit is required.
    r"|(?=[0-9a-f]*[0-9])[0-9a-f]{8,}"
    r"|[0-9]{5,})\b",
    re.IGNORECASE,
)


def cause_of(reason: str | None) -> str:
    """Return the cause of a failure with this reason."""
    text = " ".join((reason or "").split())
    start = 0
    while found := _ATTEMPTS.match(text, start):
        start = found.end()
    return _IDS.sub("…", text[start:]) or NO_REASON
