"""Reads signatures and annotations of functions of the application, and issues warnings that point at its lines.

Python 3.14 raises NameError when an annotation is read whose name is imported only for type checkers. ``parameters_of``
and ``annotations_of`` return such an annotation as text, as under ``from __future__ import annotations``.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ForwardRef, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def _signature(function: Callable[..., Any]) -> inspect.Signature:
        return inspect.signature(function, annotation_format=Format.FORWARDREF)

    def _annotations(function: object) -> dict[str, Any]:
        return get_annotations(function, format=Format.FORWARDREF) if callable(function) else {}
else:
    _signature = inspect.signature

    def _annotations(function: object) -> dict[str, Any]:
        return dict(getattr(function, "__annotations__", {}))


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    found = _signature(function).parameters.values()
    return [one.replace(annotation=_text(one.annotation)) for one in found]


def annotations_of(function: object) -> dict[str, Any]:
    return {name: _text(annotation) for name, annotation in _annotations(function).items()}


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for name, annotation in annotations_of(inspect.unwrap(function)).items():
        # Resolved one by one, since an annotation that only type checkers know must not hide the others.
        try:
            hints |= resolved({name: annotation}, function)
        except (NameError, TypeError, AttributeError, SyntaxError):
            continue
    return hints


def resolved(annotations: dict[str, Any], function: Callable[..., Any], *, extras: bool = False) -> dict[str, Any]:
    """Return *annotations* as types; look up names in the module of *function*. *extras* keeps ``Annotated[...]``.

    If an annotation cannot be resolved, the call raises an error such as NameError.
    """
    # A stand-in with these annotations alone, since get_type_hints resolves all annotations of what it is given.
    alone: Any = type("Annotated", (), {})()
    alone.__annotations__ = annotations
    return get_type_hints(alone, getattr(inspect.unwrap(function), "__globals__", None), include_extras=extras)


def class_of(hint: Any) -> type | None:
    if get_origin(hint) in {Union, UnionType}:
        [hint, *others] = [one for one in get_args(hint) if one is not NoneType]
        if others:
            return None
    return hint if inspect.isclass(hint) else None


def _text(annotation: Any) -> Any:
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation


def is_asynchronous(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - asks for the method


def warn(text: str, category: type[Warning]) -> None:
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("sqlalchemy_fairqueue."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
