"""Methods of shared limits, which several queues draw from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, QueueBase
from sqlalchemy_fairqueue.queue.verbs import recorded, verb
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values import UNSET, Unset, check_name, policy_changes

if TYPE_CHECKING:
    import builtins

    from sqlalchemy_fairqueue.queue.verbs import RecordedWhere, Where
    from sqlalchemy_fairqueue.values import PolicyChanges, Rate, SharedLimit


class Limits(Facet[QueueBase]):
    """Shared limits, as ``queue.limits``, which several queues draw from.

    What changes one is recorded on a session, sent at once on a connection or engine.

    Example:
        >>> queue.limits.configure(engine, "mail", max_concurrency=3)
        >>> [limit.max_concurrency for limit in queue.limits.list(engine, "mail")]
        [3]
    """

    @recorded
    def configure(
        self,
        where: RecordedWhere,
        name: str,
        *,
        max_concurrency: int | Unset | None = UNSET,
        rate: Rate | str | Unset | None = UNSET,
    ) -> None:
        """Make a limit that several queues share, or change it: ``limits.configure(session, "openai", rate="50/s")``.

        Queues draw from it when ``configure(where, limits=["openai"])`` names it. What they take together never
        exceeds it. Queues that always have messages get equal parts, and what one leaves is for the others.

        Args:
            where: As for the class.
            name: Its name, within the schema of the queue.
            max_concurrency: Most messages of all its queues that consumers hold at once, exactly. None: no limit.
            rate: Most messages of all its queues in a time, exactly. None: no rate.

        What is not given stays as it is. Dequeues of its queues run one after the other. A consumer that it holds back
        polls 50 times a second. Locks the limit until the transaction ends, and its queues are not served meanwhile.

        Raises:
            InvalidArgument: A bad name or value, or nothing to set.

        Example:
            >>> queue.limits.configure(engine, "openai", max_concurrency=20, rate="50/s")
            >>> queue.configure(engine, limits=["openai"])
            >>> [limit.max_concurrency for limit in queue.limits.list(engine, "openai")]
            [20]
        """
        check_name("limit", name)
        changes: PolicyChanges = {}
        if max_concurrency is not UNSET:
            changes["max_concurrency"] = max_concurrency
        if rate is not UNSET:
            changes["rate"] = rate
        if not changes:
            raise InvalidArgument("limits.configure has nothing to set; give max_concurrency or rate")
        wanted = policy_changes("limits.configure", None, changes)
        return self._perform(where, [change.configure_limit(self._target, name, wanted)], None)

    @recorded
    def remove(self, where: RecordedWhere, name: str) -> None:
        """Remove a shared limit, from which no queue may draw any more. One that does not exist is no error.

        Raises:
            InvalidArgument: A bad name, or queues draw from it. On a session that comes from the COMMIT.

        Example:
            >>> queue.limits.configure(engine, "unused", max_concurrency=20)
            >>> queue.limits.remove(engine, "unused")
            >>> queue.limits.list(engine, "unused")
            []
        """
        check_name("limit", name)
        return self._perform(where, [change.configure_limit(self._target, name, None)], None)

    @verb
    def list(self, where: Where, name: str | None = None) -> builtins.list[SharedLimit]:
        """The shared limits of the queue's schema, by name: what they allow, what is out, which queues draw from them.

        Args:
            where: As for the class.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.limits.configure(engine, "mail", max_concurrency=3)
            >>> [(limit.name, limit.max_concurrency) for limit in queue.limits.list(engine, "mail")]
            [('mail', 3)]
        """
        if name is not None:
            check_name("limit", name)
        return self._ask(where, partial(database.limits, schema=self._target.schema, name=name))
