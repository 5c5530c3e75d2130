"""factory-boy factories of messages, deliveries and channels. factory-boy comes with the extra ``testing``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from factory.base import Factory
from factory.declarations import Sequence

from sqlalchemy_fairqueue.testing.performing import make_delivery
from sqlalchemy_fairqueue.values.messages import Delivery, Enqueue, Receipt
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.base import AnySession, Where


__all__ = ["ChannelFactory", "DeliveryFactory", "MessageFactory"]


class MessageFactory(Factory[Any]):
    """Messages: ``build(...)`` makes an :class:`Enqueue`; ``create(session=, queue=, ...)`` returns a receipt.

    Further arguments are those of ``Queue.enqueue``; each message has a different payload.

    Example:
        >>> MessageFactory.build(kind="parse").kind
        'parse'
        >>> with Session(engine) as session, session.begin():
        ...     receipts = MessageFactory.create_batch(5, session=session, queue=queue, channel="customer-7")
        >>> queue.stats(engine).ready
        5
    """

    class Meta:
        """Names the class of what the factory makes."""

        model = Enqueue

    channel = "customer-1"
    kind = "default"
    payload = Sequence(lambda number: {"number": number})

    @classmethod
    def _create(
        cls, model_class: type[Enqueue], *args: Any, session: AnySession, queue: Queue, **fields: Any
    ) -> Receipt:
        return queue.enqueue_many(session, [model_class(*args, **fields)])[0]


class DeliveryFactory(Factory[Delivery]):
    """Deliveries as from :func:`make_delivery`, each with a different id and payload.

    Example:
        >>> DeliveryFactory(queue=queue, kind="parse", attempt=2).channel
        'customer-1'
    """

    class Meta:
        """Names the function that makes the deliveries."""

        model = make_delivery

    message_id = Sequence(lambda number: number + 1)
    channel = "customer-1"
    payload = Sequence(lambda number: {"number": number})


class ChannelFactory(Factory[Any]):
    """Channels with a policy: ``build(...)`` makes a :class:`ChannelPolicy`.

    ``create(where=, queue=, ...)`` gives such a policy to the channel *name*, which is created if it is missing. The
    call returns *name*, by default a generated name such as ``customer-1``.

    Example:
        >>> channel = ChannelFactory.create(where=engine, queue=queue, name="customer-7", weight=5)
        >>> [(found.channel, found.weight) for found in queue.channels(engine)]
        [('customer-7', 5)]
    """

    class Meta:
        """Names the class of what the factory makes."""

        model = ChannelPolicy

    name = Sequence(lambda number: f"customer-{number + 1}")

    @classmethod
    def _build(cls, model_class: type[ChannelPolicy], *args: Any, name: str, **fields: Any) -> ChannelPolicy:  # noqa: ARG003 - a policy has none
        return model_class(*args, **fields)

    @classmethod
    def _create(
        cls, model_class: type[ChannelPolicy], *args: Any, where: Where, queue: Queue, name: str, **fields: Any
    ) -> str:
        queue.configure_channel(where, name, model_class(*args, **fields))
        return name
