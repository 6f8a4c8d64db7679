"""Checks of the tubes into which policies move failed jobs."""

from __future__ import annotations

from penstock.core.policy import TubePolicy
from penstock.core.retry import THEN_MOVE, RetryPolicy, parse_retry
from penstock.node.caller import Caller, check_tube


def check_policy(caller: Caller, policy: TubePolicy) -> None:
    """Raise an error if a tube policy would move jobs into a tube that the caller may not use."""
    if policy.retry:
        check_target(caller, parse_retry(policy.retry))


def check_target(caller: Caller, retry: RetryPolicy) -> None:
    """Raise an error if a retry policy would move jobs into a tube that the caller may not use."""
    if retry.then == THEN_MOVE:
        check_tube(caller, retry.target)
