"""Verbs of a queue, found by what they take first."""

import inspect

from sqlalchemy_fairqueue import Queue

_FACETS = ("plans", "limits", "schedules", "dead_letters", "groups", "admin")


def verbs() -> set[str]:
    """The methods of a queue that take a session, connection or engine first, those of facets as ``plans.list``."""
    found = _verbs_of(Queue)
    for facet in _FACETS:
        found |= {f"{facet}.{name}" for name in _verbs_of(type(getattr(Queue("documents"), facet)))}
    return found - {"group"}


def _verbs_of(owner: type) -> set[str]:
    members = inspect.getmembers(owner, inspect.isfunction)
    taken = {name: [*inspect.signature(method).parameters] for name, method in members if not name.startswith("_")}
    return {name for name, names in taken.items() if names[1:2] and names[1] in {"where", "session", "engine"}}
