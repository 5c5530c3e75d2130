"""Compilation of the simulator by numba, if it is installed; without it, Python runs the same functions."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_NUMBA: Any = import_module("numba") if find_spec("numba") else None


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """A function that a compiled one may call. For all others it is unchanged."""
    if _NUMBA is None:
        return function
    marked: Callable[P, R] = import_module("numba.extending").register_jitable(function)
    return marked


@cache
def compiled(function: Callable[P, R]) -> Callable[P, R] | None:
    """A function that is compiled on its first call; None without numba.

    The compiled code is kept on disk for later processes, where that can be written to.
    """
    if _NUMBA is None:
        return None
    try:
        fast: Callable[P, R] = _NUMBA.njit(cache=True)(function)
    except RuntimeError:
        fast = _NUMBA.njit(function)
    return fast
