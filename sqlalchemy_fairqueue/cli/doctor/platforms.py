"""Platforms: servers that speak PostgreSQL's protocol and are not, or not quite, PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.doctor.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext

_PAGE = "see the page on servers of the documentation"


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that the queue is known to work on, or not to.

    Attributes:
        name: What its makers call it.
        level: Whether the queue works there.
        message: What is different there.
        remedy: What to do about it.
    """

    name: str
    level: Level
    message: str
    remedy: str


_OF_VERSION = {
    "-YB-": Platform(
        "YugabyteDB", Level.PROBLEM, "it has no ctid, by which a delivery proves that its row is the one it took",
        "put the queue into a PostgreSQL beside it",
    ),
    "CockroachDB": Platform(
        "CockroachDB", Level.PROBLEM, "it has neither ctid nor NOTIFY", "put the queue into a PostgreSQL beside it"
    ),
    "Redshift": Platform(
        "Amazon Redshift", Level.PROBLEM, "it locks no rows", "put the queue into a PostgreSQL beside it"
    ),
    "Greenplum": Platform(
        "Greenplum", Level.PROBLEM, "it spreads rows over segments, each with row ids of its own",
        "put the queue into a PostgreSQL beside it",
    ),
}  # fmt: skip
_OF_MARK = {
    "aurora": Platform(
        "Amazon Aurora", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "connect workers to the writer endpoint, not through RDS Proxy, and reconnects follow a failover",
    ),
    "alloydb": Platform(
        "AlloyDB", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "keep the queue's tables out of the columnar engine; connect workers to the primary instance",
    ),
    "neon": Platform(
        "Neon", Level.OK, "its storage is its own, its rows and locks are PostgreSQL's",
        "connect workers to the endpoint without '-pooler'; one that listens keeps the compute awake",
    ),
    "citus": Platform(
        "Citus", Level.OK, "the queue's tables are local tables of the node that it is installed on",
        "distribute none of them, and connect to this node",
    ),
}  # fmt: skip


def recognise(version: str, marks: Sequence[str]) -> Platform | None:
    """The platform, from the text of ``version()`` and from what only it has; None: PostgreSQL, as far as is known."""
    for part, platform in _OF_VERSION.items():
        if part in version:
            return platform
    return next((_OF_MARK[mark] for mark in marks if mark in _OF_MARK), None)


def is_pooler(host: str) -> bool:
    """Whether the name of a host is that of a transaction pooler, as Neon and others name them."""
    return host.partition(".")[0].endswith("-pooler")


def check_platform(context: CheckContext) -> Iterator[Finding]:
    """A server that is not quite PostgreSQL, and tables that are kept in another way than PostgreSQL's own."""
    row = context.execute("platform", schema=context.schema).one()
    platform = recognise(row.version, row.marks)
    if platform is not None:
        yield Finding(
            "platform", platform.level, f"the server is {platform.name}: {platform.message} ({_PAGE})",
            platform.remedy, {"platform": platform.name},
        )  # fmt: skip
    host = context.connection.engine.url.host or ""
    if is_pooler(host):
        yield Finding(
            "platform", Level.WARNING, f"{host} is a transaction pooler, over which no worker can listen",
            "connect workers to the endpoint without '-pooler', or give them listen=False; prepared statements: "
            "see the page on drivers of the documentation",
            {"host": host},
        )  # fmt: skip
    for table, method in row.other_methods:
        yield Finding(
            "platform", Level.PROBLEM,
            f"table {table} is kept by access method {method}: row ids prove deliveries only in PostgreSQL's own, heap",
            f'alter table "{context.schema}".{table} set access method heap;', {"table": table, "method": method},
        )  # fmt: skip
    if "citus" in row.marks and row.has_distribution:
        for table in context.execute("distributed_tables", schema=context.schema).scalars():
            yield Finding(
                "platform", Level.PROBLEM, f"Citus has distributed table {table}: the queue's functions need it local",
                f"select undistribute_table('{context.schema}.{table}');", {"table": table},
            )  # fmt: skip
