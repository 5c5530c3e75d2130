"""Rows of generated classes go through pickle, as those of classes in modules do."""

import copy
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, select
from sqlalchemy.orm import DeclarativeBase, Session, declarative_base, joinedload

from sqlalchemy_fairqueue.models import make_models
from tests.orm.rows import enqueue


class Base(DeclarativeBase):
    """A Base in a module."""


Old: Any = declarative_base()
Holder = SimpleNamespace(metadata=MetaData(schema="queue"))


class Local:
    """Its Base is no global of a module."""

    Base: Any = declarative_base()


class Own(make_models(Base, "own").DeadLetter):  # type: ignore[misc]
    """A class of the user's, of the same table."""

    __tablename__ = None


_READ = """
import pickle, sys
for _ in range(int(sys.argv[1])):
    row = pickle.load(sys.stdin.buffer)
    print(row.kind, type(row).__table__, flush=True)
pickle.load(sys.stdin.buffer)
"""


@pytest.mark.many
@pytest.mark.parametrize("schema", [None, "tenant_7"])
@pytest.mark.parametrize("base", [Base, Old, Holder, Local.Base], ids=["class", "function", "object", "local"])
def test_rows_of_any_class(base: Any, schema: str | None) -> None:
    """A row of each generated class comes back of the same class, by pickle and by a deep copy."""
    models = make_models(base, schema)
    for name in models.__dataclass_fields__:
        cls = getattr(models, name)
        assert type(pickle.loads(pickle.dumps(cls()))) is cls  # noqa: S301 - it was made here
        assert type(copy.deepcopy(cls())) is cls


def test_another_process() -> None:
    """Another process finds, or makes, the class by the Base, which a module has; without one it says what to do."""
    places = ((Base, None), (Old, "x"), (Holder, None), (Holder, "x"))
    classes: list[Any] = [make_models(base, schema).Message for base, schema in places]
    lost: Any = make_models(Local.Base).Message
    pickled = b"".join(pickle.dumps(cls(kind="parse")) for cls in [*classes, lost])
    program = [sys.executable, "-c", _READ, str(len(classes))]
    read = subprocess.run(program, input=pickled, check=False, capture_output=True)
    assert read.stdout.decode().splitlines() == [f"parse {cls.__table__}" for cls in classes], read.stderr.decode()
    assert "define the Base at the top of a module" in read.stderr.decode()


def test_a_class_of_the_users() -> None:
    """A class that inherits from a generated one is pickled by its own name."""
    assert type(pickle.loads(pickle.dumps(Own()))) is Own  # noqa: S301 - it was made here


def test_a_loaded_row(engine: Engine) -> None:
    """What was loaded, relations too, is there after pickle."""
    models = make_models(Base)
    enqueue(engine, {"n": 1})
    with Session(engine) as session:
        message = session.scalars(select(models.Message).options(joinedload(models.Message.channel))).one()
        found = pickle.loads(pickle.dumps(message))  # noqa: S301 - it was made here
    assert (found.payload, found.channel.name, type(found.channel)) == ({"n": 1}, "alice", models.Channel)
