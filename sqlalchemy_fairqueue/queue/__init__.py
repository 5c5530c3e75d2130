"""Public class of the library: ``Queue``, one object a queue.

It knows what can be asked; ``unit_of_work``, ``consumer`` and ``database`` know how it is sent.
"""

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
    DeliveryMethods,
    WithdrawalMethods,
    ConfigurationMethods,
    LookupMethods,
    JobMethods,
    GroupMethods,
    MiddlewareMethods,
):
    """A named set of channels in a PostgreSQL database, served in turn.

    Cheap to make and stateless but for what dequeue remembers between calls; make one a queue and module. It connects
    to nothing: every call is given the session, connection or engine that it works on.

    Args:
        name: 1 to 512 bytes. The queue needs no declaration: its first enqueue makes its channels.
        schema: Where ``op.create_fairqueue(schema=...)`` installed it. None, the default: wherever the search_path
            finds it, which must be the same installation for all connections of an engine.
        codec: How payloads become bytes. Default: JSON. Every process that uses the queue must agree.
        defaults: The policy of channels made by this object's enqueues, unless ``configure`` gave the queue another in
            the database.
        max_attempts: Deliveries after which a failing message becomes a dead letter, unless the message says otherwise.
        bind_arguments: For sessions with several engines: passed to ``Session.connection(bind_arguments=...)`` to find
            the one that holds the queue, like ``{"mapper": Upload}``.
        notify: Whether transactions of this object wake waiting consumers by NOTIFY, which is sent only while one
            waits. Give False for transactions that you prepare by SQL of your own: PREPARE refuses one that has
            notified. (Two-phase sessions and connections of SQLAlchemy never notify.) Workers that listen find such
            work only at their next poll; give them ``Worker(listen=False)`` too, so that they poll more often. A
            producer behind a transaction pooler can notify; a worker there cannot listen.
        check_kinds: Whether an enqueue of a kind without a handler gives an
            :class:`~sqlalchemy_fairqueue.UnhandledKindWarning`, once a kind, where this object has any handler. Give
            False if other processes handle the other kinds.

    Raises:
        InvalidArgument: A bad name or number.

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
        """The queue's plans, which are policies with a name that channels follow.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.Plans`
        """
        return Plans(self)

    @property
    def limits(self) -> Limits:
        """The shared limits, which several queues draw from.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.Limits`
        """
        return Limits(self)

    @property
    def schedules(self) -> Schedules:
        """The queue's schedules, by which messages recur.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.Schedules`
        """
        return Schedules(self)

    @property
    def dead_letters(self) -> DeadLetters:
        """The queue's dead letters, which will not be tried again.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.DeadLetters`
        """
        return DeadLetters(self)

    @property
    def groups(self) -> Groups:
        """The queue's groups of messages, which :meth:`group` makes.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.Groups`
        """
        return Groups(self)

    @property
    def admin(self) -> Admin:
        """What operators do rarely with single messages and workers.

        See Also:
            :class:`~sqlalchemy_fairqueue.queue.Admin`
        """
        return Admin(self)
