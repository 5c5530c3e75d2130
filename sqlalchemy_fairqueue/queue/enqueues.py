"""Enqueue methods of a queue: add messages inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue.codecs import Codec, JsonCodec, encode_texts
from sqlalchemy_fairqueue.database.engines import on, refused, run, run_transaction
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.queue.base import OPEN_GROUPS, QueueBase, RecordedWhere, recorded
from sqlalchemy_fairqueue.queue.instrumentation import installed
from sqlalchemy_fairqueue.unit_of_work.operations import EnqueueMessage, ReceiptUpdate
from sqlalchemy_fairqueue.unit_of_work.sending import send, send_alone, send_together
from sqlalchemy_fairqueue.unit_of_work.sessions import record, session_of
from sqlalchemy_fairqueue.values.checks import HEADERS_BYTES
from sqlalchemy_fairqueue.values.messages import GROUP_HEADER, Enqueue, EnqueueOptions, Receipt

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.database.messages import Membership


class _HeadersCodec(JsonCodec):
    """The codec of headers: always JSON, so that a router can read them without knowing the queue's codec."""

    def _converted(self, value: Any, path: str) -> Any:
        raise PayloadError(
            f"a {type(value).__name__} cannot be encoded as JSON, and headers do not go through the queue's codec; "
            "convert it, or put it into the payload",
            path,
        )


_headers = _HeadersCodec()
# The most bytes of a payload; the tables have this limit too. PostgreSQL could not return a bytea of twice this size as
# text, so nobody could dequeue such a payload.
_CONTENT_BYTES = 256 * 2**20
_NONE: Mapping[str, str] = {}
# An attrgetter runs in C, which saves time with many messages.
_kind = attrgetter("message.kind")
_receipt = attrgetter("receipt")
# The most bytes that a message's own headers and those of the instrumentation may have together. If they have more, the
# headers of the instrumentation are left out. This is half of HEADERS_BYTES, since the database adds spaces to JSON,
# which may double its size.
_CARRIED_UP_TO = HEADERS_BYTES // 2


class EnqueueMethods(QueueBase):
    """enqueue and enqueue_many: recorded on a session, sent at once on a connection or engine."""

    @recorded
    def enqueue(
        self,
        where: RecordedWhere,
        *,
        channel: str,
        payload: Any,
        kind: str = "default",
        **options: Unpack[EnqueueOptions],
    ) -> Receipt:
        """Add a message in the caller's transaction. If the transaction rolls back, the message never existed.

        On a session the message is only recorded, and takes no lock. Right before the COMMIT, after its own flush, the
        session sends all that it recorded, in lock order. A savepoint that rolls back drops what was recorded since it
        began. The COMMIT waits if another transaction is creating the same channel or adding the same key. Under
        REPEATABLE READ and SERIALIZABLE it may then fail with SQLSTATE 40001; try the transaction again.

        On an engine the call commits a transaction of its own before it returns; this is the fastest way if you change
        nothing else. On a connection the message is added at once, in the open transaction. Several such calls must
        come in lock order (by queue, channel and key, compared as UTF-8 bytes), and before completions and cancels of
        the same transaction. Write your own rows before the calls: a key, or a channel that a call creates, stays
        locked until the transaction ends, which can deadlock with row locks that you take later. If you need the id of
        a message before the COMMIT of a session, enqueue on ``session.connection()``.

        The payload is encoded immediately; later changes to it have no effect. :class:`~sqlalchemy_fairqueue.Enqueue`
        documents the arguments. The options are delay, at, priority, key, headers, max_attempts, on_duplicate, cost,
        unique_for, unique_from, ordering_key and coalesce. The ``message_id`` and ``outcome`` of the receipt are set
        after the session's COMMIT, or on return for an engine or connection.

        Raises:
            PayloadError: The payload cannot be encoded, or is larger than the channel's max_payload_bytes.
            DuplicateMessage: Another message holds the key, and on_duplicate is "raise".
            ChannelFull: The channel has reached its max_backlog, and its policy says "raise".
            LockOrderError: An enqueue is out of lock order.

        A payload that cannot be encoded raises at once. On a session the COMMIT raises all other errors, and nothing is
        committed. On a connection, a call that raises has added nothing, and the transaction stays usable; but if the
        payload is larger than max_payload_bytes, you must roll the transaction back.

        Example:
            >>> with Session(engine) as session, session.begin():
            ...     receipt = queue.enqueue(session, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
            >>> receipt.outcome
            'created'
        """
        operations = self._enqueues([Enqueue(channel=channel, payload=payload, kind=kind, **options)])
        if (session := session_of(where)) is None:
            return on(where, lambda sync: self._sent(sync, operations)[0])
        if OPEN_GROUPS in session.__dict__:
            self._check_groups(session.__dict__[OPEN_GROUPS])
        record(session, operations)
        return operations[0].receipt

    @recorded
    def enqueue_many(self, where: RecordedWhere, messages: Iterable[Enqueue]) -> list[Receipt]:
        """Add messages in one statement, as :meth:`enqueue` adds one. If one raises an error, none is added.

        The receipts are in the order of the messages. All messages are checked and encoded before the first is recorded
        or sent. On an engine the transaction is READ COMMITTED. Errors are those of :meth:`enqueue`.

        Example:
            >>> files = [Enqueue(channel="customer-7", payload={"file": name}) for name in ("a.pdf", "b.pdf")]
            >>> with Session(engine) as session, session.begin():
            ...     receipts = queue.enqueue_many(session, files)
            >>> [receipt.outcome for receipt in receipts]
            ['created', 'created']
        """
        operations = self._enqueues(messages)
        if (session := session_of(where)) is None:
            return on(where, lambda sync: self._sent(sync, operations))
        if OPEN_GROUPS in session.__dict__:
            self._check_groups(session.__dict__[OPEN_GROUPS])
        if operations:
            record(session, operations)
        return list(map(_receipt, operations))

    @staticmethod
    def _sent(where: Connection | Engine, operations: list[EnqueueMessage]) -> list[Receipt]:
        updates: list[ReceiptUpdate] = []
        if isinstance(where, Engine):
            if len(operations) == 1:
                updates = run(where, lambda connection: send_alone(connection, operations[0]), calls_only=True)
            elif operations:
                updates = run_transaction(where, lambda connection: send(connection, operations, last=True))
        elif isinstance(where, Connection):
            if operations:
                updates = send_together(where, operations)
        else:
            raise refused(where)
        for update in updates:
            update()
        return [operation.receipt for operation in operations]

    def _enqueues(
        self, messages: Iterable[Enqueue], membership: Membership | None = None, *, sends: bool = True
    ) -> list[EnqueueMessage]:
        """Check and encode messages. If they will be sent (*sends*), warn of unhandled kinds and add trace headers."""
        if isinstance(messages, Enqueue) or not isinstance(messages, Iterable):
            raise InvalidArgument(f"messages is {messages!r:.80}; give a list of Enqueue")
        carried: Mapping[str, str] = _NONE
        if (instrumentation := installed.instrumentation) is not None and (sends or membership is not None):
            messages = list(messages)
            for message in messages:
                if not isinstance(message, Enqueue):
                    raise _no_message(message)
            carried = instrumentation.before_enqueue(self.name, messages) if messages else _NONE
        fixed = _NONE if membership is None else {GROUP_HEADER: membership.text}
        # Encoded once, for the messages that have no headers of their own.
        added = encode_texts({**carried, **fixed}) if carried or fixed else None
        target, encode = self._target, self.codec.encode
        operations: list[EnqueueMessage] = []
        for message in messages:
            # The body of this loop is not a function, since a call for each message would cost as much as the rest.
            if not isinstance(message, Enqueue):
                raise _no_message(message)
            content: Any = encode(message.payload)
            if not isinstance(content, bytes) or len(content) > _CONTENT_BYTES:
                raise _no_content(self.codec, content)
            headers = added if message.headers is None else _encoded_headers(message.headers, carried, fixed)
            attempts = message.max_attempts or self.max_attempts
            receipt = Receipt(message.channel)
            operations.append(EnqueueMessage(message, content, headers, attempts, membership, target, receipt))
        for kind in dict.fromkeys(map(_kind, operations)) if sends else ():
            if kind not in self._checked_kinds:
                self._check_kind(kind)
        return operations


def _no_message(message: object) -> InvalidArgument:
    return InvalidArgument(
        f"messages has {message!r:.80} where an Enqueue is needed; write Enqueue(channel=..., payload=...), or "
        "job.prepare(channel=..., ...) of a job"
    )


def _no_content(codec: Codec, content: object) -> PayloadError:
    if not isinstance(content, bytes):
        return PayloadError(f"codec {codec!r} made a {type(content).__name__} of it; encode must return bytes")
    return PayloadError(
        f"{len(content):,} bytes are more than a message may have, {_CONTENT_BYTES:,}; keep them somewhere else, and "
        "enqueue where they are"
    )


def _encoded_headers(own: Mapping[str, Any], carried: Mapping[str, str], fixed: Mapping[str, str]) -> str:
    """Encode a message's own headers with those of the instrumentation, *carried*, and of its group, *fixed*.

    If *own* and *carried* share a name, or all headers might exceed the database's limit, all of *carried* is left out.
    """
    try:
        headers = _headers.encode({**own, **carried, **fixed})
        if carried and (len(headers) > _CARRIED_UP_TO or not carried.keys().isdisjoint(own)):
            headers = _headers.encode({**own, **fixed})
    except PayloadError as error:
        raise InvalidArgument(f"headers at {error.path}: {error.args[0]}") from error
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"headers is {own!r:.80}; give a mapping that can be encoded as JSON") from error
    if len(headers) > HEADERS_BYTES:
        raise InvalidArgument(
            f"headers have {len(headers):,} bytes of JSON, more than {HEADERS_BYTES:,}; keep what is large in the "
            "payload"
        )
    return headers.decode()
