"""Alembic finds nothing to change between the models and what the operation installs."""

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, NullPool, create_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.models import make_models
from tests.alembic.catalog import catalog
from tests.fixtures.database import Database, MakeDatabase, install
from tests.orm import stubs

ODD = 'My "odd" %:schema'

CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "pk": "pk_%(table_name)s",
}


def differences(engine: Engine, metadata: MetaData, *, include_schemas: bool = False) -> list[object]:
    """What Alembic itself would change, comparing all it can."""
    options = {
        "compare_type": True,
        "compare_server_default": True,
        "include_schemas": include_schemas,
        "fairqueue": False,
        # The days of the history come and go.
        "include_name": lambda name, kind, _: kind != "table" or not str(name).startswith("fq_history_"),
    }
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def test_ready_made_classes(engine: Engine) -> None:
    """The ready-made classes are what is installed in the default schema."""
    assert differences(engine, models.metadata) == []


@pytest.mark.many(1)
@pytest.mark.parametrize("convention", [{}, CONVENTION], ids=["plain", "convention"])
def test_made_models(empty_database: Database, convention: dict[str, str]) -> None:
    """Models in a user's MetaData are what is installed, in each schema, whatever the naming convention. Without a
    schema of their own they are in that of the MetaData.
    """

    class Base(DeclarativeBase):
        metadata = MetaData(schema="apps", naming_convention=convention)

    assert make_models(Base).Message.__table__.schema == "apps"
    make_models(Base, ODD)
    engine = create_engine(empty_database.url, poolclass=NullPool)
    with engine.begin() as connection:
        for schema in ("apps", ODD):
            connection.execute(CreateSchema(schema))
            install(connection, schema=schema)
    assert differences(engine, Base.metadata, include_schemas=True) == []


def test_names_and_columns_are_what_is_installed(database: Database, make_database: MakeDatabase) -> None:
    """Column by column, with collations, defaults, constraints and indexes, the models say what the SQL files say."""
    created = make_database(installed=False)
    engine = create_engine(created.url)
    models.metadata.create_all(engine)
    engine.dispose()
    kinds = ("column", "index", "constraint")
    made, installed = (
        {name: entry for name, entry in catalog(one, kinds=kinds).items() if "fq_history_default" not in name}
        for one in (created, database)
    )
    for entries in (made, installed):
        # PostgreSQL takes some parentheses out when it reads its own text of a condition.
        for name in [one for one in entries if one.startswith("constraint ")]:
            entries[name] = (str(entries[name][1]).replace("(", "").replace(")", ""), *entries[name][2:])
    # The models write nothing, so that they need no sequence.
    assert installed.pop("column fq_history.id")[:-1] == made.pop("column fq_history.id")[:-1]
    assert made == installed


def test_what_type_checkers_see_is_what_the_columns_are() -> None:
    """The stubs have each class, and each column with the type in Python that it has, and None where it may be null."""
    for path, text in stubs.written().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tests.orm.stubs"


@pytest.mark.parametrize("state", [models.ChannelState, models.QueueState])
def test_states_have_no_unique_index(database: Database, state: Any) -> None:
    """The mapping has a key, and the table has none, which is what keeps an open snapshot from slowing the queue."""
    assert len(state.__mapper__.primary_key) == 1
    unique = "select count(*) from pg_index where indrelid = to_regclass(:name) and indisunique"
    assert database.value(unique, name=state.__tablename__) == 0
