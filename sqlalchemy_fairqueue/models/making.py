"""Mapped classes for a MetaData of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.orm import DeclarativeBase, registry

from sqlalchemy_fairqueue.models.channels import ChannelMixin, ChannelStateMixin
from sqlalchemy_fairqueue.models.history import HistoryMixin, PrunedHistoryMixin
from sqlalchemy_fairqueue.models.loads import LoadMixin
from sqlalchemy_fairqueue.models.messages import DeadLetterMixin, LeaseMixin, MessageMixin, SignalMixin
from sqlalchemy_fairqueue.models.queues import QueueConfigMixin, QueueStateMixin

if TYPE_CHECKING:
    from sqlalchemy import MetaData


class HasMetaData(Protocol):
    """A declarative Base of any kind."""

    metadata: MetaData


@dataclass(frozen=True, slots=True)
class Models:
    """The mapped classes of one installation.

    Attributes:
        Channel: See :class:`ChannelMixin`.
        ChannelState: See :class:`ChannelStateMixin`.
        DeadLetter: See :class:`DeadLetterMixin`.
        History: See :class:`HistoryMixin`.
        Lease: See :class:`LeaseMixin`.
        Load: See :class:`LoadMixin`.
        Message: See :class:`MessageMixin`.
        PrunedHistory: See :class:`PrunedHistoryMixin`.
        QueueConfig: See :class:`QueueConfigMixin`.
        QueueState: See :class:`QueueStateMixin`.
        Signal: See :class:`SignalMixin`.
    """

    Channel: type[ChannelMixin]
    ChannelState: type[ChannelStateMixin]
    DeadLetter: type[DeadLetterMixin]
    History: type[HistoryMixin]
    Lease: type[LeaseMixin]
    Load: type[LoadMixin]
    Message: type[MessageMixin]
    PrunedHistory: type[PrunedHistoryMixin]
    QueueConfig: type[QueueConfigMixin]
    QueueState: type[QueueStateMixin]
    Signal: type[SignalMixin]


def make_models(base: type[Any] | HasMetaData, schema: str | None = None) -> Models:
    """Map fairqueue's tables into the MetaData of a Base, once for each schema that it is installed in.

    The classes share the Base's MetaData and nothing else: they take no columns, dataclass behaviour or table names
    from it, and their names do not clash with classes of the user's in ``relationship("Message")``. Relate to them by
    class: ``relationship(models.Message, ...)``. For classes that do inherit from the Base, use the mixins.

    Args:
        base: A declarative Base, or whatever has its ``metadata``.
        schema: The schema that fairqueue is installed in. None is the schema of the MetaData, and without one the
            connection's default schema.

    Raises:
        sqlalchemy.exc.InvalidRequestError: The MetaData holds the tables of that schema already.
    """

    class Made(DeclarativeBase):
        # A registry of its own, so that class names that the user's relationships look up are the user's.
        registry = registry(metadata=base.metadata)

    def made(name: str, mixin: type[Any]) -> type[Any]:
        body = {"__fairqueue_schema__": schema, "__doc__": mixin.__doc__, "__module__": __name__}
        return type(name, (mixin, Made), body)

    return Models(
        Channel=made("Channel", ChannelMixin),
        ChannelState=made("ChannelState", ChannelStateMixin),
        DeadLetter=made("DeadLetter", DeadLetterMixin),
        History=made("History", HistoryMixin),
        Lease=made("Lease", LeaseMixin),
        Load=made("Load", LoadMixin),
        Message=made("Message", MessageMixin),
        PrunedHistory=made("PrunedHistory", PrunedHistoryMixin),
        QueueConfig=made("QueueConfig", QueueConfigMixin),
        QueueState=made("QueueState", QueueStateMixin),
        Signal=made("Signal", SignalMixin),
    )
