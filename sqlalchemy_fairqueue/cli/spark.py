"""``spark``: the data pipeline from the command line, on a local Spark or the cluster that settings name.

Each command is a plain function of ``sqlalchemy_fairqueue.spark`` with a session around it. Spark itself is imported
only when one runs.
"""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import not_found_error, refused_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec, choice
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.report import Archive, Window, channels_parts, check_output, doubt, scenarios_in
from sqlalchemy_fairqueue.cli.spark_session import history_of, progress, settings_of, source_options, spark_session
from sqlalchemy_fairqueue.cli.tables import BLANK, Column, Table, key_values, number_column, text_table
from sqlalchemy_fairqueue.formats import plural
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty
from sqlalchemy_fairqueue.reporting.reports import ReplayedQueue, Report, document_of
from sqlalchemy_fairqueue.reporting.simulation.scenarios import RECORDED

_TEXT_FORMATS = ("json", "csv")
_FORMATS = ("parquet", "orc", *_TEXT_FORMATS)

Conf = Annotated[
    list[str] | None,
    Spec(
        metavar="NAME=VALUE",
        help="A setting of Spark, like spark.master=spark://host:7077; can be repeated. Default: local[2].",
    ),
]
Place = Annotated[str, Spec(metavar="PATH")]
Output = Annotated[Path, Spec(help="The file of the page.")]
Title = Annotated[str, Spec(metavar="TEXT", help="Its title.")]


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


_STARVATION = number_column(
    "longest starvation", get=lambda one: one.longest_starvation and one.longest_starvation.lasted
)


def report_history(
    options: Options,
    *,
    archive: Archive = None,
    output: Output = Path("fairness.html"),
    title: Title = "Fairness report",
    window: Window = None,
    conf: Conf = None,
) -> Result:
    """Make a fairness report of a history: waits, fair shares, starvation, limits of every tenant, as an HTML page.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    check_output("--output", output)
    with (
        spark_session("report", conf) as spark,
        history_of(spark, options, archive) as (history, policies),
        progress("going through the history"),
    ):
        # The session says what to install where Spark is missing.
        from sqlalchemy_fairqueue.spark.reporting import report

        try:
            made = report(history, policies=policies, output=output, title=title, window=window)
        except HistoryEmpty as error:
            raise not_found_error(str(error)) from error
    channels = made.figures.channels
    document = {
        "output": str(made.path),
        "title": made.title,
        "made_at": made.made_at,
        "queues": [document_of(one, without=("windows",)) for one in made.figures.queues],
        "channels": [document_of(one) for one in channels],
    }
    return Result(document, (*channels_parts(channels, _STARVATION), f"the report is in {made.path}"))


_REPLAYED = (
    Column("queue"), Column("scenario"), number_column("at once"), number_column("error"), number_column("fairness"),
    number_column("median wait"), number_column("p95 wait"), number_column("longest wait"),
)  # fmt: skip


def replay_history(
    options: Options,
    scenarios: Annotated[Path, Spec(metavar="SCENARIOS")],
    *,
    archive: Archive = None,
    output: Output = Path("replay.html"),
    title: Title = "What if",
    window: Window = None,
    conf: Conf = None,
) -> Result:
    """Replay a history under other policies: the fairness report, with the scenarios beside what happened.

    The history is that of the database, or an archive. Without --queue it is of all queues.

    Options:
        scenarios: A TOML file with a table [[scenario]] for each.
    """
    wanted = scenarios_in(scenarios)
    check_output("--output", output)
    with spark_session("replay", conf) as spark, history_of(spark, options, archive) as (history, policies):
        from pyspark import StorageLevel

        from sqlalchemy_fairqueue.spark.reporting import replays, report

        # The report and the replays are of the same rows, also while the history grows.
        kept = history.persist(StorageLevel.DISK_ONLY)
        try:
            with progress("replaying the history"):
                settings = settings_of(options, archive)
                replayed = replays(kept, wanted, policies=policies, settings=settings, window=window)
            with progress("going through the history"):
                made = report(kept, policies=policies, output=output, title=title, replays=replayed, window=window)
        except HistoryEmpty as error:
            raise not_found_error(str(error)) from error
    return _replayed(made)


def _replayed(report: Report) -> Result:
    named = [(RECORDED, report.figures.queues, ()), *((one.name, one.queues, one.replayed) for one in report.replays)]
    assumed = {(name, one.queue): one for name, _, replayed in named for one in replayed}
    rows: list[tuple[Any, ...]] = [
        (queue.queue, name, *_assumed(assumed.get((name, queue.queue))),
         None if queue.fairness is None else f"{queue.fairness:.3f}", queue.wait.p50, queue.wait.p95, queue.wait.max)
        for index, _ in enumerate(report.figures.queues) for name, queues, _ in named
        for queue in queues[index : index + 1]
    ]  # fmt: skip
    doubted = [Text(doubt(one), style="red") for one in assumed.values() if not one.trusted]
    document = {
        "output": str(report.path),
        "title": report.title,
        "made_at": report.made_at,
        "scenarios": [
            {
                "scenario": name,
                "queues": [document_of(one, without=("windows",)) for one in queues],
                "replayed": [document_of(one) | {"trusted": one.trusted} for one in replayed],
            }
            for name, queues, replayed in named
        ],
    }
    return Result(document, (text_table(_REPLAYED, rows), *doubted, f"the report is in {report.path}"))


def _assumed(one: ReplayedQueue | None) -> tuple[str | None, str | None]:
    if one is None:
        return None, None
    return f"{one.workers:.1f}", None if one.replay_error is None else f"{one.replay_error:.0%}"
