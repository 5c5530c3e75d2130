"""``spark``: the data pipeline from the command line, on a local Spark or the cluster that settings name.

Each command is a plain function of ``sqlalchemy_fairqueue.spark`` with a session around it. Spark itself is imported
only when one runs.
"""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import asdict
from typing import Annotated

from sqlalchemy_fairqueue.cli.errors import refused_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec, choice
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.report import Conf
from sqlalchemy_fairqueue.cli.spark_session import progress, source_options, spark_session
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, key_values, number_column
from sqlalchemy_fairqueue.formats import plural

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
    """Enqueue the rows of a file, all or none: columns channel and payload; kind, at, delay, priority, key, headers.

    With a --job-id, a load can be repeated when it is not known whether it was done.

    Options:
        path: A file or folder, or a URI that Spark knows.
        job_id: The same job again enqueues nothing.
        kind: The kind of messages whose row names none.
        json_payload: A payload of text is a JSON document.
        on_duplicate: Action for a row whose key another message has: skip, raise, replace.
        rejects: The folder for rows with bad values, which else fail the load.
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
    """Bring an archive of the history up to date: Parquet, a folder a UTC day, of all queues.

    A day is added whole or not at all. After a run that was killed, the next run adds what is missing.

    Options:
        path: A folder, or a URI that Spark knows.
        today: Archive the present day too, as far as it goes.
        partitions: Tasks that read a day, each on a connection.
        accept_loss: Go on where days were dropped before they were archived.
    """
    with (
        open_installation(options) as installation,
        spark_session("archive", conf) as spark,
        progress("archiving the history"),
    ):
        from sqlalchemy_fairqueue.spark.archiving import archive

        done = archive(
            spark,
            path,
            **source_options(installation),
            today=today,
            num_partitions=partitions,
            fail_on_data_loss=not accept_loss,
        )
    document = {"path": path, "rows": done.rows, "days": _ARCHIVED.documents(done.days), "until": f"{done.until}"}
    added = f"{plural(done.rows, 'attempt')} added to {path}"
    return Result(
        document | {"lost": [f"{day}" for day in done.lost]},
        _ARCHIVED.listing(done.days, "nothing new was to be archived", added),
    )


def compact_files(
    options: Options, path: Place, *, min_files: Annotated[int, Spec(min=2)] = 2, conf: Conf = None
) -> Result:
    """Join the files of each day of an archive that has several into one.

    A run that is killed loses and doubles nothing: the next run, of this command or of archive, cleans up.

    Options:
        path: The folder of an archive, or a URI that Spark knows.
        min_files: The least number of files of a day that are joined.
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
