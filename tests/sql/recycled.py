"""A database that tests of SQL have one after the other, with its connections: making one takes longer than most tests.

Between two tests it is emptied. Once its catalog has changed, or it has grown, the next test gets a new one.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
from psycopg import IsolationLevel

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, tables
from tests.fixtures.clock import Clock, install_clock
from tests.fixtures.database import Database
from tests.sql.client import Kernel

_GROWN = 4 * 2**20
_FRESH_OID = 16384

# Whatever a test makes, changes or drops, or lets the planner learn, is a row that another transaction has written.
_CATALOG = "select md5(string_agg(one, ' ' order by one)) from (" + " union all ".join(
    f"select '{table}' || oid || ' ' || xmin as one from {table} where oid >= {_FRESH_OID}"
    for table in (
        "pg_attrdef", "pg_class", "pg_constraint", "pg_namespace", "pg_operator", "pg_proc", "pg_publication",
        "pg_rewrite", "pg_trigger", "pg_type",
    )
) + f"""
  union all select 'pg_attribute' || attrelid || ' ' || attnum || ' ' || xmin from pg_attribute
    where attrelid >= {_FRESH_OID} and attnum > 0
  union all select 'public' || xmin from pg_namespace where nspname = 'public'
  union all select 'statistics' from pg_statistic where starelid >= {_FRESH_OID}
  union all select 'settings' from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
    where d.datname = current_database()
  union all select 'prepared' from pg_prepared_xacts where database = current_database()
) catalog
"""  # fmt: skip
_SIZE = "select pg_database_size(current_database())"
_SEQUENCES = """
select setval(c.oid::regclass, s.seqstart, false) from pg_sequence s join pg_class c on c.oid = s.seqrelid
where c.relname <> 'test_clock'
"""
# Triggers and references are about rows that stay.
_EMPTY = "; ".join(
    [
        "set lock_timeout = '2s'",
        "set session_replication_role = replica",
        *(f"delete from {table}" for table in tables(NEEDED_VERSION)),
        _SEQUENCES,
        "reset session_replication_role",
        "reset lock_timeout",
    ]
)
_AS_NEW = "reset all; reset role; unlisten *; close all"


@dataclass
class Recycled:
    """The database and the connections that the next test gets.

    Attributes:
        make: Makes a new database.
        unmake: Drops it.
        clocked: Whether its clock can be put forward.
    """

    make: Callable[[], Database]
    unmake: Callable[[Database], None]
    clocked: bool
    _database: Database | None = None
    _catalog: str = ""
    _size: int = 0
    _free: list[Kernel] = field(default_factory=list)
    _lent: list[Kernel] = field(default_factory=list)

    def take(self) -> Database:
        """Return an empty database."""
        if self._database is None:
            self._database = self.make()
            if self.clocked:
                install_clock(self._database)
            self._catalog, self._size = self._database.value(_CATALOG), self._database.value(_SIZE)
        return self._database

    def clock(self) -> Clock:
        """Return the clock of the database, which goes right again for each test."""
        database = self.take()
        database.execute("select setval('public.test_clock', 0)")
        return Clock(database, "public")

    def open(self, *, isolation: str | None = None, autocommit: bool = False, name: str = "me") -> Kernel:
        """Return a kernel on a connection that no other test has now."""
        kernel = self._free.pop() if self._free else Kernel.open(self.take().conninfo)
        kernel = Kernel(kernel.connection, name=name)
        kernel.connection.autocommit = autocommit
        kernel.connection.isolation_level = IsolationLevel[isolation] if isolation else None
        self._lent.append(kernel)
        return kernel

    def give_back(self) -> None:
        """Empty the database and take its connections back; drop it if it is not as it was."""
        if self._database is None:
            return
        as_it_was = False
        try:
            for kernel in self._lent:
                self._renew(kernel)
            self._lent.clear()
            if self._database.value(_CATALOG) == self._catalog:
                self._database.execute(_EMPTY)
                as_it_was = self._database.value(_SIZE) < self._size + _GROWN
        finally:
            if not as_it_was:
                self.drop()

    def drop(self) -> None:
        """Drop the database: the next test gets another one."""
        for kernel in [*self._free, *self._lent]:
            kernel.connection.close()
        self._free.clear()
        self._lent.clear()
        if self._database is not None:
            self.unmake(self._database)
            self._database = None

    def _renew(self, kernel: Kernel) -> None:
        connection = kernel.connection
        if connection.closed:
            return
        with suppress(psycopg.OperationalError):
            connection.rollback()
            connection.autocommit = True
            connection.execute(_AS_NEW)
            list(connection.notifies(timeout=0))
            self._free.append(kernel)
