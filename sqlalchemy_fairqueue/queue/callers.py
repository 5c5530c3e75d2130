"""Callers of this package, at whose lines warnings point."""

from __future__ import annotations

import inspect


def frames_of_this_package() -> int:
    """The ``stacklevel`` with which the caller's warning points at the code that called this package."""
    level, frame = 1, inspect.currentframe()
    frame = None if frame is None else frame.f_back
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("sqlalchemy_fairqueue."):
        level, frame = level + 1, frame.f_back
    return level
