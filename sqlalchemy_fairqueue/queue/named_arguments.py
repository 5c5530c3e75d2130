"""Errors of calls whose arguments have no name or a misspelt one: they say what to write.

Python's own error counts positional arguments, which the caller of a method with a dozen names cannot use. A call that
succeeds costs one more frame. Type checkers and ``inspect.signature`` see the method itself.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from sqlalchemy_fairqueue.values import Enqueue
from sqlalchemy_fairqueue.values.misspellings import WITHOUT_AN_ENGINE, unknown_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")
_SHOWN = 80
# In this order people write them.
_FIRST = ("channel", "payload")


def named_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method that takes one positional argument, and names beside, say what is wrong with a call.

    A method that takes any names passes them on to :class:`Enqueue`.

    Raises:
        TypeError: In place of Python's, with the call that was probably meant.
    """
    name = method.__name__
    parameters = inspect.signature(method).parameters.values()
    [_, where, *_] = parameters
    names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        names = [one.name for one in fields(Enqueue)]

    def explained(error: TypeError, args: Sequence[object], kwargs: Mapping[str, object]) -> TypeError:
        # The first one is the instance.
        called = type(args[0]).__name__ if name == "__init__" and args else name
        problem = _problem(called, where.name, args[2:], kwargs, names)
        return error if problem is None else TypeError(problem)

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                return await method(*args, **kwargs)
            except TypeError as error:
                if (told := explained(error, args, kwargs)) is error:
                    raise
                raise told from None

        return cast("Callable[P, R]", acall)

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TypeError as error:
            if (told := explained(error, args, kwargs)) is error:
                raise
            raise told from None

    return call


def _problem(
    method: str, where: str, further: Sequence[object], given: Mapping[str, object], names: Sequence[str]
) -> str | None:
    """What is wrong with the names of a call. None: nothing is."""
    if further:
        shown = ", ".join(_short(value) for value in further)
        if hasattr(further[0], "dialect"):
            advice = WITHOUT_AN_ENGINE
        elif not {*_FIRST} <= {*names}:
            advice = f"its arguments are {', '.join(names)}"
        else:
            written = ", ".join(f"{name}={_short(value)}" for name, value in zip(_FIRST, further, strict=False))
            advice = f"write {method}({where}, {written})"
        return f"{method} has {shown} without a name; {advice}"
    # A handler's kind may have a name, too.
    known = [where, *names] if where == "kind" else names
    return unknown_argument(method, {name: value for name, value in given.items() if name != where}, known)


def _short(value: object) -> str:
    return f"{value!r:.{_SHOWN}}"
