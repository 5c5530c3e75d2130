"""What the library keeps for each schema is bounded: an application may have a schema for each tenant."""

import gc
import weakref
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase

from sqlalchemy_fairqueue import Queue, database
from sqlalchemy_fairqueue.models import make_models


def _caches() -> Iterator[tuple[str, Any]]:
    """The functions that keep what they return, by their names, of the modules that write SQL."""
    modules = [module.name for module in walk_packages(database.__path__, f"{database.__name__}.")]
    for module in (*modules, "sqlalchemy_fairqueue.doctor.findings"):
        for name, value in vars(import_module(module)).items():
            if hasattr(value, "cache_parameters"):
                yield f"{module}.{name}", value


def test_caches_of_schemas() -> None:
    """No function keeps what it makes for every schema that it ever saw."""
    of_schemas = {name: cache for name, cache in _caches() if "schema" in signature(cache).parameters}
    assert of_schemas
    assert [name for name, cache in of_schemas.items() if cache.cache_parameters()["maxsize"] is None] == []


def _queue(schema: str) -> "weakref.ref[Any]":
    return weakref.ref(Queue("documents", schema=schema))


def _models(schema: str) -> "weakref.ref[Any]":
    class Base(DeclarativeBase):
        pass

    models = make_models(Base, schema)
    str(select(models.Message).join(models.Message.channel))
    return weakref.ref(models.Message)


def test_what_is_made_for_a_schema_goes() -> None:
    """Queues and generated classes go with the application's last reference."""
    made = [make(f"tenant_{number}") for make in (_queue, _models) for number in range(3)]
    gc.collect()
    assert [reference() for reference in made] == [None] * len(made)
