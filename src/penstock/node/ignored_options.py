"""Options of a call that a tube does not support: they are dropped, and a warning about each is logged once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.policy import TubePolicy

# The maximum number of different warnings. Clients choose the names of options, so the number has to be limited.
WARNINGS_MAX: Final = 1_000
# A warning shows at most this many characters of an option's name.
_NAME_CHARS_MAX: Final = 64

# Returns whether a tube with this policy has an option of this name.
HasOption = Callable[[TubePolicy, str], bool]


class IgnoredOptions:
    """Removes options that a tube does not support from calls, and logs a warning about each of them once.

    A warning names the function, the type of the tube and the option. At most WARNINGS_MAX warnings are logged.
    """

    warn: Callable[[str], None] | None  # Logs a warning. None: warnings are dropped.
    _logged: set[str]

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self.warn = warn
        self._logged = set()

    def supported(
        self, function: str, policy: TubePolicy, options: dict[object, object], has: HasOption
    ) -> dict[str, object]:
        """Return the options of a call that the tube supports. An option with the value nil counts as missing.

        If the tube has a driver, all options are returned, because the driver interprets them.
        """
        found: dict[str, object] = {}
        for name, value in options.items():
            if value is None:
                continue
            if isinstance(name, str) and (policy.driven or has(policy, name)):
                found[name] = value
            else:
                self._ignore(function, policy.type, name)
        return found

    def _ignore(self, function: str, type: str, name: object) -> None:
        if self.warn is None or len(self._logged) > WARNINGS_MAX:
            return
        # Clients choose the names, so they are shown in ASCII: a log line stays one line.
        shown = ascii(name)[:_NAME_CHARS_MAX]
        text = f"option ignored: function={function} type={type} option={shown}"
        if text in self._logged:
            return
        self._logged.add(text)
        if len(self._logged) > WARNINGS_MAX:
            text = f"further ignored options are not logged: logged={WARNINGS_MAX}"
        self.warn(text)
