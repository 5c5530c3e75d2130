"""``spark enqueue``: a file of messages, enqueued all or none."""

# Annotations are read when the program starts, so that they must not be postponed.
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.session import Conf, progress, source_options, spark_session
from sqlalchemy_fairqueue.cli.tables import key_values

_TEXT_FORMATS = ("json", "csv")
_FORMATS = ("parquet", "orc", *_TEXT_FORMATS)
_ON_DUPLICATE = ("skip", "raise", "replace")


def enqueue_file(
    options: Options,
    *,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder, or a URI that Spark knows.")],
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", metavar="NAME", help="The same job again enqueues nothing.", show_default=False),
    ] = None,
    file_format: Annotated[str, typer.Option("--format", metavar="FORMAT", help=", ".join(_FORMATS) + ".")] = "parquet",
    kind: Annotated[
        str, typer.Option("--kind", metavar="NAME", help="The kind of messages whose row names none.")
    ] = "default",
    json_payload: Annotated[bool, typer.Option("--json-payload", help="A payload of text is a JSON document.")] = False,
    on_duplicate: Annotated[
        str,
        typer.Option(
            "--on-duplicate",
            metavar="ACTION",
            help="Action for a row whose key another message has: " + ", ".join(_ON_DUPLICATE) + ".",
        ),
    ] = "skip",
    rejects: Annotated[
        str | None,
        typer.Option(
            "--rejects",
            metavar="PATH",
            help="The folder for rows with bad values, which else fail the load.",
            show_default=False,
        ),
    ] = None,
    conf: Conf = None,
) -> Result:
    """Enqueue the rows of a file, all or none: columns channel and payload; kind, at, delay, priority, key, headers.

    With a --job-id, a load can be repeated when it is not known whether it was done.
    """
    for name, value, known in (("--format", file_format, _FORMATS), ("--on-duplicate", on_duplicate, _ON_DUPLICATE)):
        if value not in known:
            raise usage_error(f"{name} {value!r} is none of {', '.join(known)}")
    with open_installation(options) as installation, spark_session("enqueue", conf) as spark, progress("enqueuing"):
        from sqlalchemy_fairqueue.spark import enqueue
        from sqlalchemy_fairqueue.spark.errors import BadRows
        from sqlalchemy_fairqueue.spark.writing.text_files import read_messages

        queue = installation.single_queue(may_be_new=True)
        is_text = file_format in _TEXT_FORMATS
        frame = (
            read_messages(spark, path, file_format, json_payload=json_payload)
            if is_text
            else spark.read.format(file_format).load(path)
        )
        try:
            done = enqueue(
                frame, **source_options(installation), queue=queue.name, job_id=job_id, kind=kind,
                payload_format="json" if is_text or json_payload else "value", on_duplicate=on_duplicate,
                bad_rows="reject" if rejects else "fail", rejects_path=rejects,
            )  # fmt: skip
        except BadRows as error:
            message = str(error).replace("badRows=reject and rejectsPath", "--rejects PATH")
            raise CommandError(message, ExitStatus.REFUSED, "refused") from error
    document = {"queue": queue.name, **asdict(done)}
    message = f"job {done.job_id!r} " + ("is enqueued" if done.merged else "was enqueued before; nothing was done now")
    rows = [(name, value) for name, value in asdict(done).items() if name not in {"job_id", "merged"}]
    return Result(document, (Text(message), key_values(rows)))
