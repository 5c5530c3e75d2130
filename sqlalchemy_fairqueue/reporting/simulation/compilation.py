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


def borrowed(rows: R) -> R:
    """A tuple whose arrays have no owner, in a compiled function. For all others it is the tuple itself.

    Compiled code counts the references to each array of a tuple whenever it passes the tuple on, unless the array has
    no owner. Whoever calls the compiled function holds the arrays until it returns, so that they need no count. Code
    that numba keeps on disk contains this; change the file of the compiled function too when you change it.
    """
    return rows


def _without_owners(_types: Any, rows: Any) -> Any:
    """The type of the tuple, and the code that numba generates for it."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        found = arguments[0]
        for number, kind in enumerate(rows):
            if isinstance(kind, _NUMBA.types.Array):
                array = context.make_array(kind)(context, builder, builder.extract_value(found, number))
                array.meminfo = context.get_constant_null(_NUMBA.types.MemInfoPointer(_NUMBA.types.voidptr))
                found = builder.insert_value(found, array._getvalue(), number)  # noqa: SLF001 - numba has no other
        return found

    return rows(rows), generate


if _NUMBA is not None:
    _EXTENDING = import_module("numba.extending")
    _borrow = _EXTENDING.intrinsic(_without_owners)
    _EXTENDING.overload(borrowed)(lambda rows: lambda rows: _borrow(rows))  # noqa: ARG005, PLW0108 - numba's form
