"""``spark``: load files, archive the history and compact archives, on a local Spark or a cluster that --conf names.

A command imports Spark only when it runs, since Spark may not be installed.
"""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import text

from sqlalchemy_fairqueue.cli.errors import (
    CommandError,
    ExitStatus,
    not_found_error,
    one_line,
    refused_error,
    usage_error,
)
from sqlalchemy_fairqueue.cli.installation import Installation, open_installation
from sqlalchemy_fairqueue.cli.options import Conf, Options, Read, Spec, choice
from sqlalchemy_fairqueue.cli.output import Result, console, print_message
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, key_values, number_column
from sqlalchemy_fairqueue.cli.target import CONNECT_SECONDS, display_url, names_database, of_libpq
from sqlalchemy_fairqueue.formats import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.reporting.reports import Report
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings

_TEXT_FORMATS = ("json", "csv")
_FORMATS = ("parquet", "orc", *_TEXT_FORMATS)

Place = Annotated[str, Spec(metavar="PATH")]


def enqueue_file(
    options: Options,
    path: Place,
    *,
    job_id: str | None = None,
    format_: Annotated[
        str, Spec(metavar="FORMAT", help=", ".join(_FORMATS) + ".", parse=choice(*_FORMATS))
    ] = "parquet",
    kind: str = "default",
    json_payload: bool = False,
    on_duplicate: Annotated[str, Spec(metavar="ACTION", parse=choice("skip", "raise", "replace"))] = "skip",
    rejects: Annotated[str | None, Spec(metavar="PATH")] = None,
    conf: Conf = None,
) -> Result:
    """Enqueue the rows of a file in one transaction. If the load fails, nothing is enqueued.

    The file has the columns channel and payload, and may have others of a message, such as kind, at and key.

    Options:
        path: A file or folder, or a URI that Spark knows.
        job_id: Identifies the load, which can then be repeated: if it was done before, nothing is enqueued.
        kind: The kind of messages whose row names none.
        json_payload: Treat payloads of text as JSON documents.
        on_duplicate: Action for a row whose key another message has: skip, raise, replace.
        rejects: A folder for rows with bad values. Default: such rows fail the load.
    """
    with open_installation(options) as installation, spark_session("enqueue", conf) as spark, progress("enqueuing"):
        from sqlalchemy_fairqueue.spark import enqueue
        from sqlalchemy_fairqueue.spark.errors import BadRows
        from sqlalchemy_fairqueue.spark.writing.text_files import read_messages

        queue = installation.single_queue(may_be_new=True)
        is_text = format_ in _TEXT_FORMATS
        frame = (
            read_messages(spark, path, format_, json_payload=json_payload)
            if is_text
            else spark.read.format(format_).load(path)
        )
        try:
            done = enqueue(
                frame, **source_options(installation), queue=queue.name, job_id=job_id, kind=kind,
                payload_format="json" if is_text or json_payload else "value", on_duplicate=on_duplicate,
                bad_rows="reject" if rejects else "fail", rejects_path=rejects,
            )  # fmt: skip
        except BadRows as error:
            raise refused_error(str(error).replace("badRows=reject and rejectsPath", "--rejects PATH")) from error
    document = {"queue": queue.name, **asdict(done)}
    message = f"job {done.job_id!r} " + ("is enqueued" if done.merged else "was enqueued before; nothing was done now")
    rows = [(name, value) for name, value in asdict(done).items() if name not in {"job_id", "merged"}]
    return Result(document, (message, key_values(rows)))


_DAY = Column("day", get=lambda one: f"{one.day}")
_ATTEMPTS = number_column("attempts", "rows")
_ARCHIVED = Table(
    _DAY,
    _ATTEMPTS,
    Column("", "late", get=lambda one: one.is_late),
    Column("note", None, lambda one: "later rows of a day that was there" if one.is_late else None, blank=BLANK),
)
_COMPACTED = Table(_DAY, _ATTEMPTS, number_column("files before", "files"))


def archive_history(
    options: Options,
    path: Place,
    *,
    today: bool = False,
    partitions: Annotated[int | None, Spec(min=1)] = None,
    accept_loss: bool = False,
    conf: Conf = None,
) -> Result:
    """Bring an archive of the history up to date: Parquet files of all queues, in a folder for each UTC day.

    For each day, a run adds all attempts that the archive lacks, or none. If a run is killed, the next adds the rest.

    Options:
        path: A folder, or a URI that Spark knows.
        today: Archive the present day too, as far as it goes.
        partitions: Tasks that read a day, each on its own connection.
        accept_loss: Go on if days were dropped before they were archived.
    """
    with (
        open_installation(options) as installation,
        spark_session("archive", conf) as spark,
        progress("archiving the history"),
    ):
        from sqlalchemy_fairqueue.spark.archiving import archive

        done = archive(
            spark, path, **source_options(installation), today=today, num_partitions=partitions,
            fail_on_data_loss=not accept_loss,
        )  # fmt: skip
    document = {"path": path, "rows": done.rows, "days": _ARCHIVED.documents(done.days), "until": f"{done.until}"}
    added = f"{plural(done.rows, 'attempt')} added to {path}"
    return Result(
        document | {"lost": [f"{day}" for day in done.lost]},
        _ARCHIVED.listing(done.days, "nothing new was to be archived", added),
    )


def compact_files(
    options: Options, path: Place, *, min_files: Annotated[int, Spec(min=2)] = 2, conf: Conf = None
) -> Result:
    """Join the files of each day of an archive into one file.

    A killed run loses and doubles nothing. The next 'fairqueue spark compact' or 'fairqueue spark archive' cleans up.

    Options:
        path: The folder of an archive, or a URI that Spark knows.
        min_files: Join the files of a day only if the day has at least so many.
    """
    with (
        open_installation(options) as installation,
        spark_session("compact", conf) as spark,
        progress("joining files"),
    ):
        from sqlalchemy_fairqueue.spark.archiving import compact_archive

        done = compact_archive(spark, path, **source_options(installation), min_files=min_files)
    nothing = f"no day has {plural(min_files, 'file')} or more"
    document = {"path": path, "days": _COMPACTED.documents(done)}
    return Result(document, _COMPACTED.listing(done, nothing, f"{path} is compact"))


_PLACE = (
    "select cast(pg_postmaster_start_time() as text), cast(d.oid as text), cast(current_user as text), "
    "current_setting('port') from pg_database d where d.datname = current_database()"
)
_OURS = re.compile(r"sqlalchemy_fairqueue\.[\w.]+: (.+)")


@contextlib.contextmanager
def spark_session(command: str, conf: Sequence[str] | None) -> Iterator["SparkSession"]:
    """Open a session of Spark, and stop it at the end unless the process had one before.

    Raise CommandError if Spark is not installed or fails in the ``with`` block, or a text in *conf* is not NAME=VALUE.
    """
    settings = dict(_setting(one) for one in conf or ())
    try:
        import pyarrow as pa  # noqa: F401 - Spark would report a missing one later, and less clearly
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from sqlalchemy_fairqueue.spark import register
        from sqlalchemy_fairqueue.spark.java import session
    except ImportError as error:
        raise usage_error(f"Spark cannot be used: {error}; pip install 'sqlalchemy-fairqueue[spark]'") from error
    had = SparkSession.getActiveSession()
    started = session(f"fairqueue spark {command}", **{"spark.log.level": "ERROR", **settings})
    try:
        register(started)
        yield started
    except PySparkException as error:
        raise _spark_failure(str(error).strip() or type(error).__name__) from error
    finally:
        if had is None:
            started.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise usage_error(f"--conf {text!r} is no setting; give NAME=VALUE")
    return name.strip(), value


def _spark_failure(message: str) -> CommandError:
    lines = message.splitlines()
    # If a task raised an error of this library, the error is the last line of the task's traceback.
    if ours := [line for line in map(_OURS.match, lines) if line]:
        return refused_error(ours[-1][1])
    if lines[0].startswith("[PATH_NOT_FOUND]"):
        return not_found_error(f"{lines[0].removeprefix('[PATH_NOT_FOUND]').strip()} Give a path or URI that is there")
    return CommandError(f"Spark failed: {lines[0]}; --debug shows where", ExitStatus.FAILED, "failed")


@contextlib.contextmanager
def progress(activity: str) -> Iterator[None]:
    out = console(error=True)
    if out.is_terminal:
        with out.status(activity):
            yield
    else:
        print_message(activity)
        yield


def source_options(installation: Installation) -> dict[str, Any]:
    """Return Spark's options for the installation. Spark's executors connect by the URL of the engine.

    The engine itself may connect otherwise, by a function of the application. So raise CommandError if the URL does not
    connect, or leads to another server, database or role than the engine.
    """
    url = of_libpq(installation.target.engine.url)
    dsn = url.render_as_string(hide_password=False)
    with installation.engine.connect() as connection:
        place = tuple(connection.execute(text(_PLACE)).one())
    try:
        with psycopg.connect(make_conninfo(dsn, connect_timeout=CONNECT_SECONDS)) as own:
            found = own.execute(_PLACE).fetchone()
    except psycopg.Error as error:
        found, problem = None, f"does not connect: {one_line(error)}"
    else:
        problem = "leads to another server, database or role"
    if found != place:
        raise usage_error(
            f"Spark's executors connect by a URL, and that of the application's engine, {display_url(url)}, {problem}; "
            "name the database by --database-url"
        )
    return {"dsn": dsn, "schema": installation.schema}


def read_table(spark: "SparkSession", installation: Installation, table: str, **wanted: str) -> "DataFrame":
    reader = spark.read.format("fairqueue").options(**source_options(installation), table=table, **wanted)
    queue = installation.target.queue
    return (reader.option("queue", queue) if queue else reader).load()


@contextlib.contextmanager
def history_of(
    spark: "SparkSession", options: Options, read: Read
) -> Iterator["tuple[DataFrame, DataFrame | None, dict[str, QueueSettings]]"]:
    """Yield the history, policies and settings; if no database is named, policies are None and settings are empty."""
    from sqlalchemy_fairqueue.reporting.history import read_settings

    archive, since, until = read
    with contextlib.ExitStack() as stack:
        installation = (
            stack.enter_context(open_installation(options)) if archive is None or names_database(options) else None
        )
        queue, policies, settings = options.queue, None, {}
        if installation is not None:
            queue = installation.target.queue
            policies = read_table(spark, installation, "channels")
            settings = read_settings(installation.engine, queue=queue, schema=installation.schema)
        if archive is None:
            assert installation is not None  # noqa: S101 - without an archive there is one
            times = {name: at.isoformat() for name, at in (("since", since), ("until", until)) if at is not None}
            yield read_table(spark, installation, "history", **times), policies, settings
        else:
            yield _archived(spark, queue, archive, since, until), policies, settings


def _archived(
    spark: "SparkSession", queue: str | None, archive: str, since: datetime | None, until: datetime | None
) -> "DataFrame":
    from pyspark.errors import AnalysisException

    from sqlalchemy_fairqueue.spark.archiving import read_archive

    try:
        frame = read_archive(spark, archive)
    except AnalysisException as error:
        raise not_found_error(f"there is no archive at {archive!r}; 'fairqueue spark archive' makes one") from error
    if queue:
        frame = frame.where(frame.queue == queue)
    if since is not None:
        frame = frame.where(frame.finished_at >= since)
    return frame if until is None else frame.where(frame.finished_at < until)


def report_by_spark(options: Options, read: Read, arguments: dict[str, Any], conf: Sequence[str] | None) -> "Report":
    with spark_session("report", conf) as spark, history_of(spark, options, read) as (history, policies, settings):
        from sqlalchemy_fairqueue.spark import report

        with progress("going through the history"):
            made: Report = report(history, policies=policies, settings=settings, replayed=True, **arguments)
    return made
