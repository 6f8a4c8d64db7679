"""Finds the app that a command line names: `module:app`, or `module` if it has only one app."""

from __future__ import annotations

import importlib
import os
import sys

from penstock.tasks.app import App
from penstock.tasks.failures import BadTask


def load_app(name: str) -> App:
    """Import a module and return its app. Modules in the current directory are found, too."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # The module exists, and imports another one that does not.
        raise BadTask(f"there is no module {error.name!r} in {os.getcwd()}; name the app as module:app") from None
    if not attribute:
        apps = {each: value for each, value in vars(module).items() if isinstance(value, App)}
        if len({id(app) for app in apps.values()}) != 1:
            found = f"it has {', '.join(apps)}" if apps else "it has none"
            raise BadTask(f"name the app of module {module_name} as {module_name}:NAME; {found}")
        return next(iter(apps.values()))
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise BadTask(f"module {module_name} has no {attribute!r}; name the app as module:app")
        value = getattr(value, part)
    if not isinstance(value, App):
        raise BadTask(f"{name} is not a penstock.App, but {type(value).__name__}")
    return value
