"""History that a command reads: an archive, or the history in the database; with the policies of its channels."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from sqlalchemy_fairqueue.cli.errors import not_found_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.spark.session import read_table
from sqlalchemy_fairqueue.cli.target import names_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.cli.options import Options
    from sqlalchemy_fairqueue.simulation.scenarios import QueueSettings

Archive = Annotated[
    str | None,
    typer.Option(
        "--archive", metavar="PATH", help="An archive, instead of the history in the database.", show_default=False
    ),
]


@contextlib.contextmanager
def history_of(
    spark: SparkSession, options: Options, archive: str | None
) -> Iterator[tuple[DataFrame, DataFrame | None]]:
    """The history, and the policies as they are now.

    The policies are in the database: with an archive they are known only if a database is named too.

    Raises:
        CommandError: There is no such archive, or the database refuses something.
    """
    with contextlib.ExitStack() as stack:
        installation = (
            stack.enter_context(open_installation(options)) if archive is None or names_database(options) else None
        )
        policies = read_table(spark, installation, options, "channels") if installation else None
        if archive is None:
            assert installation is not None  # noqa: S101 - without an archive there is one
            yield read_table(spark, installation, options), policies
        else:
            yield _archived(spark, options, archive), policies


def settings_of(options: Options, archive: str | None) -> dict[str, QueueSettings]:
    """The settings of queues as they are now, with an archive only if a database is named too.

    Raises:
        CommandError: The database refuses something.
    """
    if archive is not None and not names_database(options):
        return {}
    from sqlalchemy_fairqueue.reporting.history import read_settings

    with open_installation(options) as installation:
        return read_settings(installation.engine, queue=options.queue, schema=installation.schema)


def _archived(spark: SparkSession, options: Options, archive: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    from sqlalchemy_fairqueue.spark.archiving import read_archive

    try:
        frame = read_archive(spark, archive)
    except AnalysisException as error:
        raise not_found_error(f"there is no archive at {archive!r}; 'fairqueue spark archive' makes one") from error
    return frame.where(frame.queue == options.queue) if options.queue else frame
