"""``spark enqueue``: a file or table of messages, all or none."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.failures import Failure, usage
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.printing import facts
from sqlalchemy_fairqueue.cli.sites import site_of
from sqlalchemy_fairqueue.cli.spark.sessions import Conf, place_options, progress, spark_session
from sqlalchemy_fairqueue.cli.statuses import Status

_TEXTS = ("json", "csv")
_FORMATS = ("parquet", "orc", *_TEXTS)
_DUPLICATES = ("skip", "raise", "replace")


def enqueue_file(
    options: Options,
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder, or a URI that Spark knows.")],
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", metavar="NAME", help="The same job again enqueues nothing.", show_default=False),
    ] = None,
    file_format: Annotated[str, typer.Option("--format", metavar="FORMAT", help=", ".join(_FORMATS) + ".")] = "parquet",
    kind: Annotated[str, typer.Option("--kind", metavar="NAME", help="Of messages whose row names none.")] = "default",
    json_payload: Annotated[bool, typer.Option("--json-payload", help="A payload of text is a JSON document.")] = False,
    on_duplicate: Annotated[
        str,
        typer.Option("--on-duplicate", metavar="ACTION", help="Rows whose key stands: " + ", ".join(_DUPLICATES) + "."),
    ] = "skip",
    rejects: Annotated[
        str | None,
        typer.Option(
            "--rejects",
            metavar="PATH",
            help="Where rows with bad values go; else they fail the load.",
            show_default=False,
        ),
    ] = None,
    conf: Conf = None,
) -> Answer:
    """Enqueue the rows of a file, all or none: columns channel and payload; kind, at, delay, priority, key, headers.

    Give a --job-id, and a load of which it is not known whether it was done can be repeated.
    """
    for name, value, known in (("--format", file_format, _FORMATS), ("--on-duplicate", on_duplicate, _DUPLICATES)):
        if value not in known:
            raise usage(f"{name} {value!r} is none of {', '.join(known)}")
    with site_of(options) as site, spark_session("enqueue", conf) as spark, progress("enqueuing"):
        from sqlalchemy_fairqueue.spark import enqueue  # noqa: PLC0415 - as late as Spark
        from sqlalchemy_fairqueue.spark.errors import BadRows  # noqa: PLC0415
        from sqlalchemy_fairqueue.spark.writing.files import read_messages  # noqa: PLC0415

        queue = site.one(new=True)
        is_text = file_format in _TEXTS
        frame = (
            read_messages(spark, path, file_format, json_payload=json_payload)
            if is_text
            else spark.read.format(file_format).load(path)
        )
        try:
            done = enqueue(
                frame, **place_options(site), queue=queue.name, job_id=job_id, kind=kind,
                payload_format="json" if is_text or json_payload else "value", on_duplicate=on_duplicate,
                bad_rows="reject" if rejects else "fail", rejects_path=rejects,
            )  # fmt: skip
        except BadRows as error:
            words = str(error).replace("badRows=reject and rejectsPath", "--rejects PATH")
            raise Failure(words, Status.REFUSED, "refused") from error
    document = {"queue": queue.name, **asdict(done)}
    words = f"job {done.job_id!r} " + ("is enqueued" if done.merged else "was enqueued before; nothing was done now")
    rows = [(name, value) for name, value in asdict(done).items() if name not in {"job_id", "merged"}]
    return Answer(document, (Text(words), facts(rows)))
