"""The parameters of a task: binds the arguments of a call to names, and converts stored arguments back.

A job stores its arguments as a map from the names of parameters to plain values. So a client in another language, or
the command line, can put the job of a task, and tools can show the arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, get_type_hints

from penstock.tasks.context import Context
from penstock.tasks.failures import BadArguments, BadTask
from penstock.tasks.values import BadValue, Reader, plain, reader_of

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class TaskSignature:
    """The parameters of the function of a task, without the context."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        parameters = list(inspect.signature(function).parameters.values())
        self._hints = _hints(function)
        self.takes_context = bool(parameters) and self._is_context(parameters[0])
        if self.takes_context:
            parameters = parameters[1:]
        self._catch_all = ""
        for each in parameters:
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                self._catch_all = each.name
            elif each.kind not in _NAMED:
                raise BadTask(f"task {name}: parameter {each.name} has no name in a call; use a named parameter")
            if self._is_context(each):
                raise BadTask(f"task {name}: the context must be the first parameter, not {each.name}")
        named = [each for each in parameters if each.name != self._catch_all]
        self._positional = [each.name for each in named if each.kind is _NAMED[0]]
        self._names = frozenset(each.name for each in named)
        self._required = frozenset(each.name for each in named if each.default is each.empty)
        self._readers: dict[str, Reader] | None = None  # They are made when the task runs first.
        # Whether a result has to be stored. A function that is annotated with None never has one.
        self.returns_none = self._hints.get("return", ...) in (None, type(None))
        self.result_annotation = self._hints.get("return", Any)

    def _is_context(self, parameter: inspect.Parameter) -> bool:
        return self._hints.get(parameter.name) is Context

    def bind(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name. Raise BadArguments if they do not match the parameters."""
        named = dict(given)
        if args:
            if len(args) > len(self._positional):
                raise BadArguments(
                    f"{self._name} takes {len(self._positional)} positional arguments, but got {len(args)}"
                )
            for name, value in zip(self._positional, args):
                if name in named:
                    raise BadArguments(f"{self._name} got two values for {name!r}")
                named[name] = value
        self.check_names(named)
        return named

    def check_names(self, given: Mapping[str, Any]) -> None:
        """Raise BadArguments if an argument is missing, or if there is no parameter of its name."""
        if not given.keys() >= self._required:
            missing = ", ".join(name for name in sorted(self._required) if name not in given)
            raise BadArguments(f"{self._name} misses {missing}")
        if not self._catch_all and not given.keys() <= self._names:
            unknown = ", ".join(str(name) for name in given if name not in self._names)
            raise BadArguments(f"{self._name} has no parameter {unknown}; it has {', '.join(sorted(self._names))}")

    def to_plain(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as values that msgpack and JSON can hold."""
        for name, value in given.items():
            try:
                given[name] = plain(value)
            except BadValue as error:
                raise BadArguments(f"{self._name}: {name}: {error}") from None
        return given

    def from_plain(self, stored: Any) -> dict[str, Any]:
        """Return the arguments for the function. Raise BadArguments if they do not match the parameters."""
        if not isinstance(stored, dict) or not all(isinstance(name, str) for name in stored):
            raise BadArguments(f"{self._name} needs a map of arguments, and the body is {_article(stored)}")
        self.check_names(stored)
        if self._readers is None:
            made = {name: reader_of(self._hints.get(name, Any)) for name in self._names}
            self._readers = {name: reader for name, reader in made.items() if reader is not None}
        for name, read in self._readers.items():
            if name in stored:
                try:
                    stored[name] = read(stored[name])
                except BadValue as error:
                    raise BadArguments(f"{self._name}: {name} {error}") from None
        return stored


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function. One that cannot be evaluated is left as text."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:
        return {
            name: Context if annotation in ("Context", "penstock.Context") else annotation
            for name, annotation in getattr(function, "__annotations__", {}).items()
        }


def _article(value: object) -> str:
    kinds = {bytes: "bytes", str: "text", list: "a list", type(None): "empty", int: "a number", float: "a number"}
    return kinds.get(type(value), f"a {type(value).__name__}")
