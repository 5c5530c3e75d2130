"""Send what changes how one queue is served."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import translated
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.unit_of_work.adding import may_notify, policy_parameters
from sqlalchemy_fairqueue.unit_of_work.operations import Configure, Limit, Pause, Purge, RecordHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.unit_of_work.adding import Telling
    from sqlalchemy_fairqueue.unit_of_work.operations import Setting, Target
    from sqlalchemy_fairqueue.values import PurgeReceipt


def change(connection: Connection, target: Target, settings: Sequence[Setting]) -> list[Telling]:
    """Change one queue, in lock order: what is the queue's, what is its channels', the limit on the whole.

    What is asked of one channel, or of the queue, keeps the order in which it was asked for.
    """
    tellings: list[Telling] = []
    in_order = sorted(settings, key=_place)
    if isinstance(in_order[-1], Limit) and len(in_order) > 1:
        # The limit locks the queue's row too, before all channels.
        with translated(f"lock queue {target.queue!r}"):
            connection.execute(statements.hold_queue(target.schema), {"queue": target.queue})
    for setting in in_order:
        match setting:
            case Configure():
                _configure(connection, target, setting)
            case Limit():
                _limit(connection, target, setting)
            case RecordHistory():
                _record(connection, target, setting)
            case Pause():
                _pause(connection, target, setting)
            case Purge():
                tellings.append(_purge(connection, target, setting))
    return tellings


def _place(setting: Setting) -> tuple[bool, bytes]:
    # The limit on the whole queue locks the leased messages of all channels, whose state rows go before them.
    match setting:
        case Limit():
            return True, b""
        case RecordHistory():
            return False, b""
    return False, (setting.channel or "").encode()


def _configure(connection: Connection, target: Target, configure: Configure) -> None:
    parameters: dict[str, Any] = {"queue": target.queue, **policy_parameters(configure.policy)}
    if configure.channel is None:
        with translated(f"configure queue {target.queue!r}"):
            connection.execute(statements.configure_queue(target.schema), parameters)
    else:
        with translated(f"configure channel {configure.channel!r} of queue {target.queue!r}"):
            parameters["channel"] = configure.channel
            parameters["notify"] = may_notify(connection, [configure.target])
            connection.execute(statements.configure_channel(target.schema), parameters)


def _limit(connection: Connection, target: Target, limit: Limit) -> None:
    with translated(f"limit queue {target.queue!r}"):
        connection.execute(
            statements.limit_queue(target.schema),
            {
                "queue": target.queue,
                "max_concurrency": limit.max_concurrency,
                "notify": may_notify(connection, [limit.target]),
            },
        )


def _record(connection: Connection, target: Target, record: RecordHistory) -> None:
    retention = None if record.retention is None else microseconds(record.retention)
    with translated(f"set the history of queue {target.queue!r}"):
        connection.execute(
            statements.record_queue(target.schema),
            {"queue": target.queue, "history": record.history, "retention": retention},
        )


def _pause(connection: Connection, target: Target, pause: Pause) -> None:
    verb = "pause" if pause.paused else "resume"
    what = (
        f"queue {target.queue!r}" if pause.channel is None else f"channel {pause.channel!r} of queue {target.queue!r}"
    )
    parameters: dict[str, Any] = {"queue": target.queue, "channel": pause.channel}
    clause = statements.pause(target.schema)
    if not pause.paused:
        clause = statements.resume(target.schema)
        parameters["notify"] = may_notify(connection, [pause.target])
    with translated(f"{verb} {what}"):
        connection.execute(clause, parameters)


def _purge(connection: Connection, target: Target, purge: Purge) -> Telling:
    with translated(f"purge channel {purge.channel!r} of queue {target.queue!r}"):
        purged = connection.execute(
            statements.purge_channel(target.schema), {"queue": target.queue, "channel": purge.channel}
        ).scalar_one()
    return partial(_tell, purge.receipt, purged)


def _tell(receipt: PurgeReceipt, purged: int) -> None:
    receipt.purged = purged
