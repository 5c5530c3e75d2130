"""Maps the tables into a MetaData of the user, and declares grants on it for Alembic's autogenerate."""

from __future__ import annotations

import copyreg
import pickle
import sys
from functools import cache
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4
from weakref import WeakValueDictionary

from sqlalchemy.orm import DeclarativeBase, registry

from sqlalchemy_fairqueue.models.classes import MIXINS, Models
from sqlalchemy_fairqueue.sql.schema import named_schema

if TYPE_CHECKING:
    from sqlalchemy import MetaData

    from sqlalchemy_fairqueue.sql.grants import RoleGrant


class HasMetaData(Protocol):
    """Any object with a ``metadata``, such as a declarative Base."""

    metadata: MetaData


class _GeneratedMeta(type(DeclarativeBase)):  # type: ignore[misc]
    """The type of generated classes, which no module contains; so pickle asks this type how to find a class again."""


_TOKEN, _ADDRESS = "fairqueue_token", "fairqueue_address"  # keys of the info of a MetaData
_metadata_of: WeakValueDictionary[str, MetaData] = WeakValueDictionary()


def _reduce(cls: Any) -> str | tuple[Any, ...]:
    if cls.__module__ != __name__:
        # The user's own class, which inherits from a generated one. Pickle finds it in its module by its name.
        return str(cls.__qualname__)
    metadata = cls.metadata
    token = metadata.info.setdefault(_TOKEN, uuid4().hex)
    _metadata_of[token] = metadata
    if _ADDRESS not in metadata.info and (address := _address_of(cls.__fairqueue_base__)) is not None:
        metadata.info[_ADDRESS] = address
    return _find_class, (token, metadata.info.get(_ADDRESS), cls.__fairqueue_schema__, cls.__name__)


def _find_class(token: str, address: str | None, schema: str | None, name: str) -> Any:
    """Find a generated class for pickle: in the same process by *token*, in another by the import path of its Base."""
    if (metadata := _metadata_of.get(token)) is not None:
        return getattr(make_models(SimpleNamespace(metadata=metadata), schema), name)
    if address is None:
        raise pickle.UnpicklingError(
            f"a {name} of make_models() was pickled by another process, where its Base was no global of a module; "
            "define the Base at the top of a module, and pickle the row again"
        )
    return getattr(make_models(resolve_name(address), schema), name)


def _address_of(base: Any) -> str | None:
    # All modules are searched, since the result of declarative_base() does not tell its own module. The main module
    # comes last, since it may be another one in another process.
    own = getattr(base, "__module__", None)
    modules = sorted(sys.modules.copy().items(), key=lambda module: (module[0] != own, module[0] == "__main__"))
    for module, content in modules:
        for name, value in list(getattr(content, "__dict__", {}).items()):
            if value is base:
                return f"{module}:{name}"
    return None


copyreg.pickle(_GeneratedMeta, _reduce)


def make_models(base: type[Any] | HasMetaData, schema: str | None = None) -> Models:
    """Map fairqueue's tables into the MetaData of a Base. Another call for the same schema returns the same classes.

    The classes share only the MetaData with the Base. Their names do not clash with yours. A relationship needs the
    class itself, ``relationship(models.Message, ...)``, since a name in quotes means a class of your Base. For classes
    that inherit from your Base, use the mixins. Rows can be pickled. Another process can unpickle them if *base* is a
    global of a module that the other process can import.

    Args:
        schema: The schema of the installation. None: the MetaData's schema, or else the connection's default schema.

    Raises:
        ValueError: In that schema, the MetaData already has a table of fairqueue, like ``fq_message``, from your code.

    Example:
        >>> class Base(DeclarativeBase): ...
        >>> models = make_models(Base)
        >>> with Session(engine) as session:
        ...     session.scalar(select(func.count()).where(models.DeadLetter.queue == "documents"))
        0
    """
    metadata = base.metadata
    target = schema or metadata.schema
    kept: dict[str | None, Models] = metadata.info.setdefault("fairqueue", {})
    held = {table.name: table for table in metadata.tables.values() if table.schema == target}
    if target in kept and kept[target].Message.__table__ is held.get("fq_message"):
        return kept[target]
    if taken := sorted(held.keys() & {mixin.__tablename__ for mixin in MIXINS.values()}):
        problem = (
            f"the MetaData has {', '.join(taken)} in {named_schema(target)}, and "
            "make_models() did not make them; map each table once: remove your classes of these tables, or do "
            "not call make_models() and map the other tables by their mixins too"
        )
        raise ValueError(problem)

    class GeneratedBase(DeclarativeBase, metaclass=_GeneratedMeta):
        # In a registry of its own, since class names in the user's relationships must find the user's classes.
        registry = registry(metadata=metadata)
        __fairqueue_base__ = base

    def mapped_class(name: str, mixin: type[Any]) -> type[Any]:
        body = {"__fairqueue_schema__": schema, "__doc__": mixin.__doc__, "__module__": __name__}
        return type(name, (mixin, GeneratedBase), body)

    kept[target] = Models(**{name: mapped_class(name, mixin) for name, mixin in MIXINS.items()})
    return kept[target]


class DefaultBase(DeclarativeBase):
    """The Base of the classes that this package offers ready-made, for the connection's default schema."""


@cache
def default_models() -> Models:
    """Return the ready-made classes. The first call maps them, which takes time."""
    return make_models(DefaultBase)


def declare_grants(metadata: MetaData, *grants: RoleGrant, schema: str | None = None) -> None:
    """Declare the grants of an installation, so that ``alembic revision --autogenerate`` writes the operations.

    Declare all grants, on the MetaData that ``env.py`` compares, since autogenerate revokes every other grant in the
    schema. Several calls for a schema add up. If the only call for a schema has no *grants*, autogenerate revokes all
    grants in the schema. If there is no call for a schema, autogenerate leaves the grants in the schema alone. Two
    different grants of one kind to a role raise ValueError.

    Example:
        >>> declare_grants(MetaData(), RoleGrant("web", "producer"), RoleGrant("worker", "consumer"))
    """
    declared: dict[str | None, tuple[RoleGrant, ...]] = metadata.info.setdefault("fairqueue_grants", {})
    target = schema or metadata.schema
    together = {(one.role, one.kind): one for one in declared.get(target, ())}
    for grant in grants:
        known = together.setdefault((grant.role, grant.kind), grant)
        if known != grant:
            problem = (
                f"role {grant.role!r} has two grants as {grant.kind} in {named_schema(target)}, {known} and {grant}; "
                "declare one, with the queues and channels of both"
            )
            raise ValueError(problem)
    declared[target] = tuple(together.values())
