"""Autogenerate beside plugins that manage functions, triggers, views, grants and schemas: they leave ours alone.

Plugins register themselves for a whole process, so Alembic runs in one of its own.
"""

import pytest

from sqlalchemy_fairqueue.sql import find_drift
from tests.alembic.conftest import SHIPPED, Project
from tests.alembic.environments import environment, models
from tests.alembic.migrations import calls, installed, roles
from tests.fixtures.database import Database, MakeDatabase

_ALEMBIC_UTILS = """
from alembic_utils.pg_view import PGView
from alembic_utils.replaceable_entity import register_entities

register_entities([PGView("public", "shown", "select 1 as one"), PGView("{place}", "fq_shown", "select 1 as one")])
"""
_DECLARATIVE = """
from sqlalchemy_declarative_extensions import (
    Functions, Grants, Roles, Schemas, Triggers, Views, declare_database, register_alembic_events,
)
from sqlalchemy_declarative_extensions.dialects.postgresql import Grant

declare_database(
    Base.metadata,
    schemas=Schemas(ignore_unspecified=True).are("reports"),
    roles=Roles(ignore_unspecified=True).are("{role}"),
    grants=Grants(ignore_unspecified=True).are(Grant.new("usage", to="{role}").on_schemas("public")),
    functions=Functions(ignore=["fq_*", "*.fq_*"]),
    triggers=Triggers(ignore=["fq_*"]),
    views=Views(),
)
register_alembic_events()
"""
_HIDE = """include_name=lambda name, type_, parents: ".fq_" not in f".{name}", """


def _named(place: str) -> str | None:
    return None if place == "public" else place


def _prepared(project: Project, make_database: MakeDatabase, place: str) -> Database:
    """An installation, and a function, a view and a trigger on a table of ours that the user has given up."""
    database = installed(project, make_database, SHIPPED, _named(place))
    database.execute("create function gone() returns integer language sql as 'select 1'")
    database.execute("create view gone_view as select 1 as one")
    database.execute(
        f"create trigger gone_trigger before update on {place}.fq_group for each row"
        " execute function suppress_redundant_updates_trigger()"
    )
    return database


def _migrated(project: Project, database: Database, place: str) -> list[str]:
    """The sorted operations of a revision that is written and run, which leaves fairqueue as it was."""
    project.run_program(["revision", "--autogenerate", "--rev-id", "two", "-m", "made"], ["upgrade", "head"])
    with database.own.connect() as connection:
        assert [str(one) for one in find_drift(connection, place)] == []
    return sorted(calls(project.body("two").split("def downgrade")[0]))


@pytest.mark.parametrize("place", ["public", "queue"])
@pytest.mark.parametrize("way", ["our hook", "a filter"])
def test_alembic_utils_leaves_ours_alone(project: Project, make_database: MakeDatabase, place: str, way: str) -> None:
    """alembic_utils changes what is the user's, also with a name like ours, and nothing of ours: where alembic_ext
    compares, without a filter; where the environment does not import it, by the page's filter.
    """
    # Before env.py has the plugin: it is run in this process to stamp the database.
    database = _prepared(project, make_database, place)
    more = _ALEMBIC_UTILS.format(place=place)
    if way == "our hook":
        environment(project, models(_named(place)), more=more, options="include_schemas=True")
    else:
        environment(project, "", imported="", more=more, options=f"{_HIDE}include_schemas=True")
    made = [f"op.create_entity({name})" for name in (f"{place}_fq_shown", "public_shown")]
    dropped = ("public_gone", "public_gone_view", f"{place}_fq_group_gone_trigger")
    expected = [*made, *(f"op.drop_entity({name})" for name in dropped)]
    assert _migrated(project, database, place) == sorted(expected)


@pytest.mark.many(1)
@pytest.mark.parametrize("place", ["public", "queue"])
def test_declarative_extensions_leave_ours_alone(project: Project, make_database: MakeDatabase, place: str) -> None:
    """sqlalchemy-declarative-extensions changes what is the user's, and nothing of ours, by the page's settings."""
    with roles(make_database(installed=False), "reader") as [reader]:
        database = _prepared(project, make_database, place)
        environment(
            project, models(_named(place)), more=_DECLARATIVE.format(role=reader), options="include_schemas=True"
        )
        database.execute(f'grant select on {place}.fq_message to "{reader}"')
        try:
            written = _migrated(project, database, place)
            assert database.value(f"select has_table_privilege('{reader}', '{place}.fq_message', 'select')")
        finally:
            database.execute(f'drop owned by "{reader}"')
    named = ("GRANT", "CreateSchema", "FUNCTION gone()", "VIEW", "TRIGGER")
    assert [name for name in named if sum(name in call for call in written) == 1] == list(named)
    assert len(written) == len(named)
