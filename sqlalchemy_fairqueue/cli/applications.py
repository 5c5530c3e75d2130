"""Load what an application calls ``module:name``: its queues and its engine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.cli.failures import said, usage

if TYPE_CHECKING:
    from types import ModuleType

AnyEngine = Engine | AsyncEngine


def load(place: str, folder: str) -> Any:
    """The object that ``module:name`` names; ``name`` may have dots.

    Args:
        place: As typed.
        folder: Where modules are looked for first.

    Raises:
        Failure: There is no such module or name, or the module fails when it is imported.
    """
    module_name, colon, path = place.partition(":")
    if not colon or not module_name or not path:
        raise usage(f"{place!r} names no object of an application; give module:name, like shop.queues:documents")
    found: Any = load_module(module_name, folder, place)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise usage(
                f"{place!r}: there is no {name!r} in {_named(found)}; {_offers(sys.modules[module_name])}"
            ) from None
    return found


def load_queue(place: str, folder: str) -> Queue:
    """The Queue that ``module:name`` names."""
    found = load(place, folder)
    if not isinstance(found, Queue):
        raise usage(
            f"{place!r} is a {type(found).__name__}, not a Queue; {_offers(sys.modules[place.partition(':')[0]])}"
        )
    return found


def load_callable(place: str, folder: str) -> Any:
    """What ``module:name`` names, which can be called."""
    found = load(place, folder)
    if not callable(found):
        raise usage(f"{place!r} is a {type(found).__name__}, which cannot be called; give a sessionmaker")
    return found


def engine_beside(place: str) -> AnyEngine | None:
    """The engine in the module of ``module:name``: the one called ``engine``, or else the only one there is.

    Raises:
        Failure: It has several.
    """
    module = sys.modules[place.partition(":")[0]]
    engines = {name: value for name, value in vars(module).items() if isinstance(value, (Engine, AsyncEngine))}
    if "engine" in engines:
        return engines["engine"]
    different = list({id(value): value for value in engines.values()}.values())
    if len(different) > 1:
        raise usage(
            f"module {module.__name__} has several engines: {', '.join(sorted(engines))}; say which database is meant "
            f"by --app {module.__name__}:{min(engines)} or --database-url"
        )
    return different[0] if different else None


def load_module(name: str, folder: str, place: str | None = None) -> ModuleType:
    """Import a module.

    Args:
        name: Of the module.
        folder: Where modules are looked for first.
        place: What was typed, for the message.

    Raises:
        Failure: There is none, or it fails.
    """
    place = place or name
    path = str(Path(folder).resolve())
    if path not in sys.path:
        # As python -m does, and what people expect who stand in the folder of their application.
        sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise usage(
                f"{place!r}: there is no module {error.name!r}; looked in {path} and where Python finds its modules "
                "(--app-dir names another folder)"
            ) from error
        raise usage(f"{place!r}: module {name} cannot be imported: {said(error)}; --debug shows where") from error
    except Exception as error:
        raise usage(
            f"{place!r}: module {name} cannot be imported: {type(error).__name__}: {said(error)}; --debug shows where"
        ) from error


def _named(found: Any) -> str:
    name = getattr(found, "__name__", None)
    return f"module {name}" if isinstance(found, type(sys)) else f"a {type(found).__name__}"


def _offers(module: Any) -> str:
    queues = sorted(name for name, value in vars(module).items() if isinstance(value, Queue))
    if queues:
        return f"its queues are {', '.join(f'{module.__name__}:{name}' for name in queues)}"
    return "it has no Queue; make one: queue = Queue('documents')"
