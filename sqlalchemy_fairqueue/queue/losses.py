"""What a value loses on its way through a payload or a result: the first part that does not come back as it was.

Dataclasses, classes of attrs, structs of msgspec and models of pydantic are compared field by field and not by their
``__eq__``: it may leave out fields, and holds NaN for unequal to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import count
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy_fairqueue.codecs import path_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SCALARS = frozenset({str, int, bool, NoneType, bytes, UUID, date, timedelta})
_MOMENTS = (datetime, time)
_COLLECTIONS = (dict, list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class Loss:
    """A part of a value that comes back as something else.

    Attributes:
        path: Where it is, from the value on.
        given: The part.
        found: What comes back instead.
    """

    path: str
    given: Any
    found: Any

    @property
    def problem(self) -> str:
        """What comes back instead, and what to do."""
        kind = type(self.found)
        back = f"{self.found!r:.80}" if kind is type(self.given) else f"the {kind.__name__} {self.found!r:.80}"
        part = f"its part {self.path.removeprefix('.')} is {self.given!r:.80}, and that" if self.path else "it"
        return f"{part} would come back as {back}; convert it, or annotate it with a type that keeps it"


def find_loss(given: Any, found: Any) -> Loss | None:
    """Return the first part of a value that does not come back equal and of its own type; None if all of it does."""
    kind = type(given)
    if kind is not type(found):
        # An annotation float allows integers.
        is_kept = kind is int and type(found) is float and given == found
    elif kind in _SCALARS:
        is_kept = given == found
    elif kind is float or kind is Decimal:
        # NaN is unequal to itself, and -0.0 equals 0.0.
        is_kept = repr(given) == repr(found)
    elif isinstance(given, _MOMENTS):
        is_kept = _reading(given) == _reading(found)
    elif isinstance(given, _COLLECTIONS):
        if len(given) == len(found):
            return _loss_of_items(given, found)
        is_kept = False
    elif (names := _fields_of(kind)) is not None:  # type: ignore[arg-type] # of mypy: a class has a hash
        return _first(_to_key, ((name, getattr(given, name, None), getattr(found, name, None)) for name in names))
    else:
        is_kept = _are_equal(given, found)
    return None if is_kept else Loss("", given, found)


def _loss_of_items(given: Any, found: Any) -> Loss | None:
    """Return the first loss of two collections that have one type and length."""
    kinds = {*map(type, given), *map(type, found)}
    is_uniform = len(kinds) == 1 and kinds <= _SCALARS
    if isinstance(given, list | tuple):
        return None if is_uniform and given == found else _first(_to_item, zip(count(), given, found))
    if not {*given} <= {*found}:
        return Loss("", given, found)
    if not is_uniform:
        # Equal keys may be of two types: 1 and True.
        kept = {item: item for item in found}
        if (loss := _first(_to_key, ((item, item, kept[item]) for item in given))) is not None:
            return loss
    return _first(_to_key, zip(given, given.values(), map(found.get, given))) if isinstance(given, dict) else None  # noqa: B905


def _first(step: Callable[[Any], str], parts: Iterable[tuple[Any, Any, Any]]) -> Loss | None:
    for name, given, found in parts:
        # Most are scalars, and a call takes as long as all else.
        if (kind := type(given)) in _SCALARS and kind is type(found) and given == found:
            continue
        if (loss := find_loss(given, found)) is not None:
            return Loss(step(name) + loss.path, loss.given, loss.found)
    return None


def _to_item(index: int) -> str:
    return f"[{index}]"


def _to_key(key: Any) -> str:
    return path_step(key) if isinstance(key, str) else f"[{key!r}]"


@lru_cache(1024)
def _fields_of(kind: Any) -> Sequence[str] | None:
    """Return the names of the attributes that make an object of a class; None if the class does not declare them."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [field.name for field in kind.__attrs_attrs__]
    if hasattr(kind, "model_fields"):
        return [*kind.model_fields, "__pydantic_extra__", "__pydantic_private__"]
    return getattr(kind, "__struct_fields__", None)


def _are_equal(given: Any, found: Any) -> bool:
    try:
        return bool(given == found)
    except Exception:  # noqa: BLE001 - a class's own code may raise anything; then nobody can tell
        return False


def _reading(moment: datetime | time) -> tuple[str, bool]:
    """Return what a clock shows, and whether it has a zone, which comes back as its offset.

    Moments in different zones may be unequal, though both name the same instant by the same offset.
    """
    return moment.isoformat(), moment.tzinfo is None
