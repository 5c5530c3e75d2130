"""The pages of groups."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from sqlalchemy_fairqueue.dashboard.base import PageBase, chosen_queues, named_queue, queue_page
from sqlalchemy_fairqueue.database.messages import read_group_members
from sqlalchemy_fairqueue.errors import InvalidArgument, UnknownGroup
from sqlalchemy_fairqueue.values.messages import checked_group_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.database.messages import Member
    from sqlalchemy_fairqueue.values.messages import GroupStatus

_GROUPS = 100
_MEMBERS = 1000
"""Members that have not ended that are looked at."""
_SHOWN = 50
_STATES = {"open": True, "finished": False}


class GroupPages(PageBase):
    """The endpoints that show groups."""

    async def groups(self, request: Request) -> Response:
        """The groups of queues, the newest first."""
        access, figures = await self.begin(request)
        name, state = request.query_params.get("queue"), request.query_params.get("state")
        if state not in _STATES:
            state = None
        listed = queue_page(request, chosen_queues(figures, name))
        found = [(queue, group) for queue in listed.queues for group in await self._groups(queue.name, state)]
        found.sort(key=lambda row: row[1].created_at, reverse=True)
        return self.answer(
            request, "groups.html", access, figures,
            chosen=name, state=state, states=list(_STATES), groups=found[:_GROUPS], most=_GROUPS,
            many=name is None and len(figures.queues) > 1, listed=listed,
        )  # fmt: skip

    async def group(self, request: Request) -> Response:
        """A group: how far it is, and the members that have not ended."""
        access, figures = await self.begin(request)
        queue = named_queue(figures, request.query_params.get("queue"))
        try:
            group_id = checked_group_id(request.query_params.get("group", ""))
            status = await self._status(queue.name, group_id)
        except (InvalidArgument, UnknownGroup) as error:
            raise HTTPException(404, str(error)) from None
        members = await self._members(queue.name, group_id)
        return self.answer(
            request, "group.html", access, figures,
            queue=queue, group=status, members=members[:_SHOWN], counts=Counter(one.state for one in members),
            looked=len(members), most=_MEMBERS,
        )  # fmt: skip

    async def _groups(self, queue: str, state: str | None) -> Sequence[GroupStatus]:
        of = self.reading.queue(queue)
        is_open = _STATES.get(state or "")
        return await self.reading.shared(
            ("groups", queue, state),
            lambda: self.reading.ask(of.groups.list, is_open=is_open, limit=_GROUPS),
        )

    async def _status(self, queue: str, group_id: UUID) -> GroupStatus:
        of = self.reading.queue(queue)
        return await self.reading.shared(
            ("group", queue, group_id), lambda: self.reading.ask(of.groups.status, group_id)
        )

    async def _members(self, queue: str, group_id: UUID) -> Sequence[Member]:
        read = partial(read_group_members, target=self.target_of(queue), group_id=group_id, limit=_MEMBERS)
        return await self.reading.shared(("members", queue, group_id), lambda: self.reading.read(read))
