"""Results of commands on one job as integers: 0 is success. errors.py has the error class of each refusal."""

from __future__ import annotations

from typing import Final

OK: Final = 0
NO_JOB: Final = 1
NOT_TAKEN: Final = 2
NOT_OWNER: Final = 3
NOT_BURIED: Final = 4
ONLY_ONCE: Final = 5
IS_TAKEN: Final = 6
NOT_KEPT: Final = 7
IS_STAGED: Final = 8
