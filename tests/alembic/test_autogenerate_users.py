"""Autogenerate beside what users have: tables, columns, triggers and names of their own."""

import logging

import pytest

from tests.alembic.catalog import catalog
from tests.alembic.conftest import LATEST, Project
from tests.alembic.environments import ADDED, HIDE, MIXIN, environment
from tests.alembic.migrations import calls, installed
from tests.fixtures.database import Database, MakeDatabase

pytestmark = pytest.mark.installed


def test_tables_of_the_user(project: Project, make_database: MakeDatabase, caplog: pytest.LogCaptureFixture) -> None:
    """A table of the user's that is gone from the metadata is told, and the sequence of another one."""
    environment(project, "pass")
    database = installed(project, make_database)
    database.execute("create table fq_mine (id serial primary key)")
    with caplog.at_level(logging.INFO, "alembic"):
        assert calls(project.autogenerate("two").split("def downgrade")[0]) == ["op.drop_table('fq_mine')"]
    said = [record.getMessage() for record in caplog.records]
    assert "Detected removed table 'fq_mine'" in said
    assert [line for line in said if "'fq_mine(id)', assuming SERIAL" in line] != []


def test_columns_of_the_users(project: Project, empty_database: Database) -> None:
    """What a user's class adds to one of our tables is added after the installation and after what it points at."""
    environment(project, MIXIN)
    project.point_at(empty_database.url)
    upgrade, downgrade = project.autogenerate("one").split("def downgrade")
    assert [line.split("(")[0] for line in calls(upgrade)] == ["op.create_table", "op.create_fairqueue", *ADDED]
    assert calls(downgrade)[3:] == [f"op.drop_fairqueue(version={LATEST})", "op.drop_table('zz_account')"]
    project.run("upgrade", "head")
    project.run("check")
    project.run("downgrade", "base")
    assert catalog(empty_database) == {}


@pytest.mark.parametrize(
    ("schema", "options"), [(None, ""), ("apps", ""), (None, HIDE)], ids=["seen", "named", "hidden"]
)
@pytest.mark.parametrize("version", [1, LATEST])
def test_columns_of_the_users_that_are_missing(
    project: Project, make_database: MakeDatabase, schema: str | None, options: str, version: int
) -> None:
    """A user's column is added where Alembic is kept from comparing the table, too, beside a step if one is to be made,
    and then is known to be there. Triggers and rules on our tables change no migration, also with the name of a column.
    """
    models = MIXIN.replace("Base):\n    acc", f"Base):\n    __fairqueue_schema__ = {schema!r}\n    acc")
    environment(project, models, options=options)
    database = installed(project, make_database, version, schema)
    table = f"{schema or 'public'}.fq_message"
    database.execute(f"create rule kind as on delete to {table} where false do instead nothing")
    for name in ("account_id", "payload"):
        database.execute(
            f"create trigger {name} before update on {table} for each row "
            "execute function suppress_redundant_updates_trigger()"
        )
    upgrade = calls(project.autogenerate("two").split("def downgrade")[0])
    steps = ["op.upgrade_fairqueue"] if version == 1 else []
    written = [line.split("(")[0] for line in upgrade]
    assert written[: len(steps) + 1] == [*steps, "op.create_table"]
    assert sorted(written[len(steps) + 1 :]) == ADDED
    project.run("upgrade", "head")
    project.run("check")
    project.run("downgrade", "one")


def test_columns_of_the_users_in_a_new_table(project: Project, make_database: MakeDatabase) -> None:
    """What a user's class adds to a table that a step brings comes after the step, in the same migration."""
    environment(
        project,
        """
        class Note(Base):
            __tablename__ = "fq_annotation"
            id = sa.orm.mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
            message_id = sa.orm.mapped_column(sa.BigInteger, nullable=False)
            note = sa.orm.mapped_column(sa.Text, nullable=False)
            tenant = sa.orm.mapped_column(sa.Text, index=True)
        """,
    )
    installed(project, make_database, 1)
    upgrade, downgrade = project.autogenerate("two").split("def downgrade")
    written = [line.split("(")[0] for line in calls(upgrade)]
    assert written == ["op.upgrade_fairqueue", "op.add_column", "op.create_index"]
    assert calls(downgrade)[-1] == f"op.downgrade_fairqueue({LATEST}, 1)"
    project.run("upgrade", "head")
    project.run("check")
    project.run("downgrade", "one")


def test_names_of_the_users(project: Project, empty_database: Database) -> None:
    """Tables of the user's own that happen to have our names are compared as all others are."""
    own = """
    class Queue(Base):
        __tablename__ = "fq_queue"
        id = sa.orm.mapped_column(sa.Integer, primary_key=True)
    """
    environment(project, own)
    project.point_at(empty_database.url)
    empty_database.execute("create table fq_lease (id int)")
    written = [line.split(",")[0] for line in calls(project.autogenerate("one").split("def downgrade")[0])]
    assert written == ["op.create_table('fq_queue'", "op.drop_table('fq_lease')"]
