"""Keyword arguments of public calls: a misspelt one raises a TypeError that names the method and the closest keyword.

`Interface`, the base of all public types, does this for every public method. It looks at the names of the arguments
only after Python has failed to bind them. Methods that collect their keywords (`**options`) call `check_keywords`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def check_keywords(method: str, given: Iterable[str], known: Iterable[str], *others: str) -> None:
    """Raise TypeError for the first of the `given` keywords that `method` does not have.

    `known` are the keywords that the method collects, and `others` those that it declares as parameters.
    """
    for name in given:
        if name not in known and name not in others:
            close = difflib.get_close_matches(name, [*known, *others], 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted({*known, *others}))}"
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{hint}")


class Interface:
    """Base of the public types. Errors about misspelt keywords name the right one, and docstrings are inherited."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(member) and not hasattr(member, "__isabstractmethod__"):
                setattr(cls, name, explaining(member))
        # Python finds the docstring of a method in the base classes, but not that of a property of a mixin.
        for name, member in inspect.getmembers_static(cls, lambda member: isinstance(member, property)):
            documented = (vars(base)[name] for base in cls.__mro__ if name in vars(base))
            member.__doc__ = next((each.__doc__ for each in documented if each.__doc__), None)


def explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method`, wrapped so that the error about a misspelt keyword names the right one.

    A method without keywords, or with `**options`, is returned unchanged. Python raises the TypeError of a wrong
    keyword where the method is called, so its traceback ends in the wrapper. A TypeError of the method's own code has a
    longer traceback and is passed on.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    keywords = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if not keywords or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return method

    def explain(error: TypeError, given: dict[str, Any]) -> None:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            check_keywords(method.__name__, given, keywords)

    @functools.wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return method(*args, **given)
        except TypeError as error:
            explain(error, given)
            raise

    @functools.wraps(method)
    async def call_async(*args: Any, **given: Any) -> Any:
        try:
            return await method(*args, **given)
        except TypeError as error:
            explain(error, given)
            raise

    return call_async if inspect.iscoroutinefunction(method) else call
