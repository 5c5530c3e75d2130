"""Verbs of a queue, found by what they take first."""

import inspect


def verbs_of(owner: type) -> set[str]:
    """The names of the methods that take a session, connection or engine first."""
    members = inspect.getmembers(owner, inspect.isfunction)
    taken = {name: [*inspect.signature(method).parameters] for name, method in members if not name.startswith("_")}
    return {name for name, names in taken.items() if names[1:2] and names[1] in {"where", "session", "engine"}}
