"""The history that a command is about: an archive, or that of the database; and the policies beside it."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Annotated

import typer

from sqlalchemy_fairqueue.cli.failures import not_found
from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE
from sqlalchemy_fairqueue.cli.places import application_named
from sqlalchemy_fairqueue.cli.sites import site_of
from sqlalchemy_fairqueue.cli.spark.sessions import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.cli.options import Options

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

    Policies are in the database: with an archive they are known only where a database is named too.

    Raises:
        Failure: There is no such archive; whatever the database refuses.
    """
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(site_of(options)) if archive is None or _names_database(options) else None
        policies = read(spark, site, options, "channels") if site else None
        if archive is None:
            assert site is not None  # noqa: S101 - without an archive there is one
            yield read(spark, site, options), policies
        else:
            yield _archived(spark, options, archive), policies


def _names_database(options: Options) -> bool:
    return bool(options.database_url or os.environ.get(DATABASE_URL_VARIABLE) or application_named(options))


def _archived(spark: SparkSession, options: Options, archive: str) -> DataFrame:
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - only who uses Spark needs it

    from sqlalchemy_fairqueue.spark.archiving import read_archive  # noqa: PLC0415

    try:
        frame = read_archive(spark, archive)
    except AnalysisException as error:
        raise not_found(f"there is no archive at {archive!r}; 'fairqueue spark archive' makes one") from error
    return frame.where(frame.queue == options.queue) if options.queue else frame
