"""Rows of which a damaged disk has lost a value."""

from typing import Literal

from tests.fixtures.database import Database

_LONG = {
    "content": "cast(repeat('x', 100000) as bytea)",
    "headers": "jsonb_build_object('a', repeat('x', 50000))",
    "kind": "repeat('x', 100000)",
}


def lose(database: Database, message_id: int, column: Literal["content", "headers", "kind"] = "content") -> None:
    """Let the stored value of a long column vanish."""
    stored = ", ".join(f"alter {name} set storage external" for name in _LONG)
    database.execute(f"alter table fq_message {stored}")
    database.execute(f"update fq_message set {column} = {_LONG[column]} where id = {message_id}")
    toast = database.value("select reltoastrelid::regclass::text from pg_class where oid = 'fq_message'::regclass")
    with database.own.connect() as connection:
        connection.exec_driver_sql("set allow_system_table_mods = on")
        for kind, sql in (("r", f"delete from {toast}"), ("t", "select 1")):
            connection.exec_driver_sql(f"update pg_class set relkind = '{kind}' where oid = '{toast}'::regclass")
            connection.exec_driver_sql(sql)
        connection.exec_driver_sql("vacuum fq_message")
        connection.exec_driver_sql("reset allow_system_table_mods")
