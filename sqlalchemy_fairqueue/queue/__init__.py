"""``Queue``, the public class of the library. The modules of this package hold its verbs and check their arguments."""

from sqlalchemy_fairqueue.queue.admin import Admin, DeadLetters
from sqlalchemy_fairqueue.queue.configuration import ConfigurationMethods, Limits, Plans
from sqlalchemy_fairqueue.queue.contexts import AsyncMiddleware, Middleware, MiddlewareMethods
from sqlalchemy_fairqueue.queue.deliveries import DeliveryMethods
from sqlalchemy_fairqueue.queue.groups import Group, GroupMethods, Groups, MemberGroup
from sqlalchemy_fairqueue.queue.jobs import Job, JobMethods
from sqlalchemy_fairqueue.queue.lookups import LookupMethods, WithdrawalMethods
from sqlalchemy_fairqueue.queue.schedules import Schedules

__all__ = [
    "Admin",
    "AsyncMiddleware",
    "DeadLetters",
    "Group",
    "Groups",
    "Job",
    "Limits",
    "MemberGroup",
    "Middleware",
    "Plans",
    "Queue",
    "Schedules",
]


class Queue(
    DeliveryMethods, WithdrawalMethods, ConfigurationMethods, LookupMethods, JobMethods, GroupMethods, MiddlewareMethods
):
    """A named set of channels in a PostgreSQL database, served in turn.

    Make one object for each queue, in a module of the application. The constructor does not connect to the database.

    The first argument of a verb is a session, Connection or Engine, sync or async; a few verbs, such as :meth:`dequeue`
    and :meth:`extend`, take only an engine. A session records enqueues, settlements, cancels, purges and configuration,
    and sends them right before its COMMIT. Any other call on a session is sent at once, in the session's transaction,
    and does not see what is only recorded. On a connection every call is sent at once, in the open transaction; on an
    engine, in transactions of its own. On an async target, await calls that are sent at once, but not recorded calls.

    A bad argument raises InvalidArgument, and an unknown one TypeError, before anything is recorded or sent. On a
    session or connection in AUTOCOMMIT the verbs that a session records raise AutocommitError. A missing or too old
    installation raises SchemaMismatch.

    Args:
        name: 1 to 512 bytes. The queue needs no declaration; its first enqueue creates what it needs.
        schema: The schema given to ``op.create_fairqueue(schema=...)``. None, the default: the search_path finds the
            installation. All connections of an engine must find the same installation.
        codec: Converts payloads to bytes. Default: JSON. Every process that uses the queue needs the same codec.
        defaults: The policy of channels that this object creates, unless ``configure`` set defaults or a default_plan.
        max_attempts: A message becomes a dead letter after this many attempts, unless it has its own ``max_attempts``.
        bind_arguments: For sessions with several engines: passed to ``Session.connection(bind_arguments=...)`` to
            choose the engine of the queue, such as ``{"mapper": Upload}``.
        notify: Whether calls of this object wake waiting consumers. Give False if your own SQL runs PREPARE
            TRANSACTION, which PostgreSQL refuses after a NOTIFY; two-phase transactions of SQLAlchemy never notify.
            Without notifications workers find the work at their next poll; start them with ``Worker(listen=False)``, so
            that they poll more often. A producer behind a transaction pooler can notify; a worker there cannot listen.
        check_kinds: Whether an object that has handlers warns of the first enqueue of a kind without a handler
            (:class:`~sqlalchemy_fairqueue.UnhandledKindWarning`). Give False if other processes handle such kinds.

    Example:
        >>> queue = Queue("documents", defaults=ChannelPolicy(max_concurrency=4))
        >>> @queue.handler("parse")
        ... def parse(delivery: Delivery, session: Session) -> None:
        ...     print("parsed", delivery.payload["file"])
        >>> with Session(engine) as session, session.begin():
        ...     receipt = queue.enqueue(session, channel="customer-7", payload={"file": "a.pdf"}, kind="parse")
        >>> Worker(engine, queue).run(drain=True)
        parsed a.pdf
    """

    @property
    def plans(self) -> Plans:
        """The queue's plans, which are policies with a name that channels follow."""
        return Plans(self)

    @property
    def limits(self) -> Limits:
        """The shared limits, which several queues draw from."""
        return Limits(self)

    @property
    def schedules(self) -> Schedules:
        """The queue's schedules, by which messages recur."""
        return Schedules(self)

    @property
    def dead_letters(self) -> DeadLetters:
        """The queue's dead letters, which will not be tried again."""
        return DeadLetters(self)

    @property
    def groups(self) -> Groups:
        """The queue's groups of messages, which :meth:`group` makes."""
        return Groups(self)

    @property
    def admin(self) -> Admin:
        """Rare operations for operators, such as moving a message, erasing a channel or stopping a worker."""
        return Admin(self)
