"""Loads objects of an application, such as queues and engines, that the command line names as ``module:name``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.errors import one_line, usage_error
from sqlalchemy_fairqueue.cli.failures import driver_error
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine

if TYPE_CHECKING:
    from types import ModuleType

    from sqlalchemy_fairqueue.cli.errors import CommandError

AnyEngine = Engine | AsyncEngine


def load_object(reference: str, folder: str) -> Any:
    """Load the object *reference*, ``module:name``. The module may be in *folder*. Raise CommandError if that fails."""
    module_name, colon, path = reference.partition(":")
    if not colon or not module_name or not path:
        raise usage_error(
            f"{reference!r} names no object of an application; give module:name, like shop.queues:documents"
        )
    found: Any = load_module(module_name, folder, reference)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise usage_error(
                f"{reference!r}: there is no {name!r} in {_description(found)}; {_queues_hint(reference)}"
            ) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _load_error(reference, module_name, error) from error
    return found


def load_queue(reference: str, folder: str) -> Queue:
    found = load_object(reference, folder)
    if not isinstance(found, Queue):
        raise usage_error(f"{reference!r} is a {type(found).__name__}, not a Queue; {_queues_hint(reference)}")
    return found


def load_callable(reference: str, folder: str) -> Any:
    found = load_object(reference, folder)
    if not callable(found):
        raise usage_error(f"{reference!r} is a {type(found).__name__}, which cannot be called; give a sessionmaker")
    return found


def load_engine(reference: str, folder: str) -> AnyEngine:
    found = load_object(reference, folder)
    if not isinstance(found, (Engine, AsyncEngine)):
        raise usage_error(f"{reference!r} is a {type(found).__name__}, not an Engine or an AsyncEngine")
    return found


def engine_of_module(reference: str) -> AnyEngine | None:
    """Return the engine of the module in *reference*, which is ``module:name``. The module must be imported already.

    Of several engines, return the one called ``engine``, or raise CommandError. If there is no engine, return None.
    """
    module = _module(reference)
    engines = {name: value for name, value in vars(module).items() if isinstance(value, (Engine, AsyncEngine))}
    if "engine" in engines:
        return engines["engine"]
    different = list({id(value): value for value in engines.values()}.values())
    if len(different) > 1:
        raise usage_error(
            f"module {module.__name__} has several engines: {', '.join(sorted(engines))}; say which database is meant "
            f"by --app {module.__name__}:{min(engines)} or --database-url"
        )
    return different[0] if different else None


def load_module(name: str, folder: str, reference: str | None = None) -> ModuleType:
    """Import a module, also from *folder*. If that fails, raise CommandError about *reference* (default: *name*)."""
    reference = reference or name
    path = str(Path(folder).resolve())
    if path not in sys.path:
        # ``python -m`` does the same, so people expect that modules of the present folder can be imported.
        sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(missing + ".")):
            raise usage_error(
                f"{reference!r}: there is no module {missing!r}; looked in {path} and where Python finds its "
                "modules (--app-dir names another folder)"
            ) from error
        raise _load_error(reference, name, error) from error


def _load_error(reference: str, module: str, error: BaseException) -> CommandError:
    driver = driver_error(error) if isinstance(error, ImportError) else None
    kind = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: "
    return driver or usage_error(
        f"{reference!r}: module {module} cannot be imported: {kind}{one_line(error)}; --debug shows where"
    )


def _module(reference: str) -> ModuleType:
    return sys.modules[reference.partition(":")[0]]


def _description(found: Any) -> str:
    name = getattr(found, "__name__", None)
    return f"module {name}" if isinstance(found, type(sys)) else f"a {type(found).__name__}"


def _queues_hint(reference: str) -> str:
    module = _module(reference)
    queues = sorted(name for name, value in vars(module).items() if isinstance(value, Queue))
    if queues:
        return f"its queues are {', '.join(f'{module.__name__}:{name}' for name in queues)}"
    return "it has no Queue; make one: queue = Queue('documents')"
