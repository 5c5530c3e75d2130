"""The session of a command, and where its database is, in the words of the data source."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlalchemy_fairqueue.cli.failures import Failure, not_found, usage
from sqlalchemy_fairqueue.cli.printing import console
from sqlalchemy_fairqueue.cli.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.cli.options import Options
    from sqlalchemy_fairqueue.cli.sites import Site

_OURS = re.compile(r"sqlalchemy_fairqueue\.[\w.]+: (.+)")

Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="A setting of Spark, like spark.master=spark://host:7077; can be repeated. Default: local[2].",
        show_default=False,
    ),
]


@contextlib.contextmanager
def spark_session(command: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """A session, stopped afterwards unless the process had one before.

    Raises:
        Failure: Spark is not installed, or a setting is none.
    """
    settings = dict(_setting(one) for one in conf or ())
    try:
        import pyarrow as pa  # noqa: F401, PLC0415 - Spark asks for it later, and in more words
        from pyspark.sql import SparkSession  # noqa: PLC0415 - only who uses Spark needs it

        from sqlalchemy_fairqueue.spark import register  # noqa: PLC0415
        from sqlalchemy_fairqueue.spark.java import session  # noqa: PLC0415
    except ImportError as error:
        raise usage(f"Spark cannot be used: {error}; pip install 'sqlalchemy-fairqueue[spark]'") from error
    had = SparkSession.getActiveSession()
    started = session(f"fairqueue spark {command}", **{"spark.log.level": "ERROR", **settings})
    try:
        register(started)
        yield started
    except Exception as error:
        raise _spark_failure(error) from error
    finally:
        if had is None:
            started.stop()


def _setting(words: str) -> tuple[str, str]:
    name, equals, value = words.partition("=")
    if not equals or not name:
        raise usage(f"--conf {words!r} is no setting; give NAME=VALUE")
    return name.strip(), value


def _spark_failure(error: Exception) -> Exception:
    """What Spark raises, in a line; errors of this library stay as they are."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only who uses Spark needs it

    if not isinstance(error, PySparkException):
        return error
    said = str(error).strip().splitlines() or [type(error).__name__]
    # What a task raised of this library stands at the end of its traceback.
    if ours := [line for line in map(_OURS.match, said) if line]:
        return Failure(ours[-1][1], Status.REFUSED, "refused")
    if said[0].startswith("[PATH_NOT_FOUND]"):
        return not_found(f"{said[0].removeprefix('[PATH_NOT_FOUND]').strip()} Give a path or URI that is there")
    return Failure(f"Spark failed: {said[0]}; --debug shows where", Status.FAILED, "failed")


@contextlib.contextmanager
def progress(words: str) -> Iterator[None]:
    """Say on stderr what goes on, in a terminal with a sign of life."""
    out = console(error=True)
    if out.is_terminal:
        with out.status(words):
            yield
    else:
        print(f"fairqueue: {words}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who waits
        yield


def place_options(site: Site) -> dict[str, Any]:
    """The installation for the plain functions: ``archive(spark, path, **place_options(site))``."""
    url = site.place.engine.url.set(drivername="postgresql")
    return {"dsn": url.render_as_string(hide_password=False), "schema": site.schema}


def read(spark: SparkSession, site: Site, options: Options, table: str = "history") -> DataFrame:
    """A table of the installation, of the named queue or of all."""
    reader = spark.read.format("fairqueue").options(**place_options(site), table=table)
    queue = options.queue or site.place.queue
    return (reader.option("queue", queue) if queue else reader).load()
