"""Sends objects and functions to executors; if this package is missing there, an error says what to install.

An object is sent as bytes, with a function that unpickles them. The function is pickled by value, so it also runs where
this package is missing.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import cloudpickle

from sqlalchemy_fairqueue.texts import library_version

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")
R = TypeVar("R")


def _unpacked(packed: bytes, pin: str) -> Any:
    """Unpickle *packed* on an executor. If a module is missing there, the error names *pin*, the version to install."""
    import pickle  # noqa: PLC0415 - nothing but the function itself is there
    import platform  # noqa: PLC0415
    import sys  # noqa: PLC0415

    try:
        return pickle.loads(packed)  # noqa: S301 - of our own driver
    except ModuleNotFoundError as error:
        name = error.name or ""
        raise ModuleNotFoundError(
            f"the executor on {platform.node()} has no module {name!r} in {sys.executable} (Python "
            f"{platform.python_version()}); run pip install 'sqlalchemy-fairqueue[report]{pin}' there, or ship "
            "an environment that has it by spark.archives",
            name=name,
        ) from None


# Functions of the module ``__main__`` are pickled by value. So _unpacked must not use names of this module.
_unpacked.__module__ = "__main__"


class Shipped:
    """Base of classes whose instances are sent to executors."""

    def __reduce__(self) -> tuple[Callable[[bytes, str], Any], tuple[bytes, str]]:
        return _unpacked, (_dumped(_Parts(self)), _pin())


class _Parts:
    def __init__(self, instance: Shipped) -> None:
        self._instance = instance

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (type(self._instance),), self._instance.__getstate__()


def shipped(function: Callable[[A], R]) -> Callable[[A], R]:
    packed, pin, unpacked = _dumped(function), _pin(), _unpacked

    def call(given: A) -> R:
        found: R = unpacked(packed, pin)(given)
        return found

    return call


def _dumped(value: object) -> bytes:
    packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def _pin() -> str:
    version = library_version()
    return f"=={version}" if version else ""


_DAEMON = "pyspark.daemon"


def freeze_modules() -> None:
    """Exclude imported modules from the garbage collection of a Spark worker; do nothing in other processes.

    Spark collects garbage after each task. To visit all objects of these modules takes longer than to read 10,000 rows.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
