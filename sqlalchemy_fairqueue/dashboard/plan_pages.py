"""The pages of plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from sqlalchemy_fairqueue.dashboard.base import PageBase, chosen_queues, message_id_of, named_queue, queue_page
from sqlalchemy_fairqueue.dashboard.policies import EDITOR
from sqlalchemy_fairqueue.database.configuration import read_plan_channels
from sqlalchemy_fairqueue.values.checks import check_name
from sqlalchemy_fairqueue.values.policies import POLICY, PolicyFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.values.reports import PlanInfo

_PAGE = 100


class PlanPages(PageBase):
    """The endpoints that show plans."""

    async def plans(self, request: Request) -> Response:
        access, figures = await self.begin(request)
        name = request.query_params.get("queue")
        listed = queue_page(request, chosen_queues(figures, name))
        plans = [
            (queue, plan, values_of(plan.policy)) for queue in listed.queues for plan in await self.plans_of(queue.name)
        ]
        return self.answer(
            request, "plans.html", access, figures,
            chosen=name, plans=plans, fields=EDITOR, many=name is None and len(figures.queues) > 1,
            listed=listed,
        )  # fmt: skip

    async def plan(self, request: Request) -> Response:
        """A plan: its policy, and the tenants that follow it."""
        access, figures = await self.begin(request)
        queue = named_queue(figures, request.query_params.get("queue"))
        name = request.query_params.get("plan", "")
        check_name("plan", name)
        plan = next((one for one in await self.plans_of(queue.name) if one.name == name), None)
        if plan is None and not access.operates:
            raise HTTPException(404, f"Queue {queue.name!r} has no plan {name!r}.")
        after = request.query_params.get("after")
        last = message_id_of(after) if after else None
        read = partial(read_plan_channels, target=self.target_of(queue.name), name=name, after=last, limit=_PAGE + 1)
        found = await self.reading.read(read) if plan else []
        return self.answer(
            request, "plan.html", access, figures,
            queue=queue, name=name, plan=plan, fields=EDITOR, values=values_of(plan.policy if plan else PolicyFields()),
            followers=found[:_PAGE], more=found[_PAGE - 1].channel_id if len(found) > _PAGE else None,
            after=after, page_size=_PAGE,
        )  # fmt: skip

    async def plans_of(self, queue: str) -> Sequence[PlanInfo]:
        of = self.reading.queue(queue)
        return await self.reading.shared(("plans", queue), lambda: self.reading.ask(of.plans.list))


def values_of(policy: PolicyFields) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in POLICY}
