"""Plans on the dashboard: shown with their tenants, followed, overridden, reset, changed and removed, with previews."""

from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy
from tests.cli.messages import QUEUE, enqueue
from tests.dashboard.conftest import Audit, Browse, Page

_TENANT = {"queue": "documents", "channel": "customer-7"}
_GOLD, _FREE = ChannelPolicy(weight=5, rate="50/s"), ChannelPolicy(weight=1, max_concurrency=2)


def _policy(engine: Engine, channel: str = "customer-7") -> ChannelPolicy:
    return QUEUE.channels(engine, channel)[0].policy


def _prepare(engine: Engine, *channels: str) -> None:
    QUEUE.plans.configure(engine, "gold", _GOLD)
    QUEUE.plans.configure(engine, "free", _FREE)
    for channel in channels or ("customer-7",):
        QUEUE.configure_channel(engine, channel, plan="free")
    enqueue(engine, "customer-7", "customer-8")


def test_plans_and_who_follows_them(browse: Browse, engine: Engine) -> None:
    """Each plan stands with its policy and its tenants; those that are new follow the default one."""
    _prepare(engine)
    QUEUE.configure(engine, default_plan="gold")
    QUEUE.configure_channel(engine, "customer-7", weight=4)
    page = browse("viewer").get("plans")
    assert "free 1 2 no limit no rate 1" in page.text
    assert "gold new tenants 0 no limit no limit 50/s 5" in page.text
    page = browse("viewer").get("plan", queue="documents", plan="free")
    assert "1 tenant follows it" in page.text
    assert page.links["customer-7"] == "tenant?queue=documents&channel=customer-7"
    assert "customer-7 weight" in page.text
    assert page.forms == []
    page = browse("viewer").get("tenant", **_TENANT)
    assert page.links["free"] == "plan?queue=documents&plan=free"
    assert "It follows the plan free , but for what is its own." in page.text
    assert browse("viewer").get("plan", queue="documents", plan="none").status == 404


def test_many_followers(browse: Browse, engine: Engine) -> None:
    """A page has a hundred tenants, and a link to the next ones."""
    QUEUE.plans.configure(engine, "gold", _GOLD)
    QUEUE.configure(engine, default_plan="gold")
    enqueue(engine, *(f"customer-{number:03}" for number in range(150)))
    page = browse("viewer").get("plan", queue="documents", plan="gold")
    first = {text for text in page.links if text.startswith("customer-")}
    rest = {text for text in browse("viewer").get(page.links["The next 100"]).links if text.startswith("customer-")}
    assert (len(first), len(rest), len(first | rest)) == (100, 50, 150)


def _preview(browse: Browse, channel: str = "customer-7", **values: str) -> tuple[Page, str]:
    """The question for a change, and the values that it says come after it."""
    user = browse("operator")
    form = user.get("tenant", queue="documents", channel=channel).form("Preview the change…")
    asked = user.submit(form, **values)
    return asked, asked.text.partition("Now Then")[2].partition("While")[0]


_TO_GOLD = ("plan free gold", "rate no rate 50/s")
_CHANGES: list[tuple[dict[str, str], tuple[str, ...], ChannelPolicy]] = [
    ({"plan": "plan:gold"}, (*_TO_GOLD, "max_concurrency 2 no limit"), ChannelPolicy(weight=4, rate="50/s")),
    ({"plan": "-"}, ("plan free none",), ChannelPolicy(weight=4, max_concurrency=2)),
    ({"reset.weight": "1"}, ("weight 4 1",), _FREE),
    ({"plan": "plan:gold", "reset.weight": "1"}, (*_TO_GOLD, "weight 4 5", "max_concurrency 2 no limit"), _GOLD),
    (
        {"plan": "plan:gold", "max_concurrency": "9"},
        (*_TO_GOLD, "max_concurrency 2 9"),
        ChannelPolicy(weight=4, rate="50/s", max_concurrency=9),
    ),
]


def test_a_tenant_and_its_plan(browse: Browse, engine: Engine) -> None:
    """A plan is followed or left, a field of its own is reset; what was shown before is what holds after."""
    channels = [f"customer-{number}" for number in range(len(_CHANGES))]
    _prepare(engine, *channels)
    for channel, (values, shown, expected) in zip(channels, _CHANGES, strict=True):
        QUEUE.configure_channel(engine, channel, weight=4)
        before = _policy(engine, channel)
        asked, told = _preview(browse, channel, **values)
        assert all(row in told for row in shown), told
        assert _policy(engine, channel) == before
        assert "The policy was changed." in browse("operator").submit(asked.form("Change the policy")).text
        assert _policy(engine, channel) == expected
        names = ("weight", "rate", "max_concurrency")
        changed = {name for name in names if getattr(before, name) != getattr(expected, name)}
        assert {row.split()[0] for row in shown} - {"plan"} == changed


def test_a_field_is_changed_or_reset(browse: Browse, engine: Engine) -> None:
    """Both at once is refused, with its name. Without a plan, the queue's defaults decide a field again."""
    QUEUE.configure(engine, defaults=ChannelPolicy(weight=7))
    QUEUE.configure_channel(engine, "customer-7", weight=4)
    asked, _ = _preview(browse, weight="6", **{"reset.weight": "1"})
    assert asked.status == 400
    assert "weight is both changed and reset" in asked.text
    asked, told = _preview(browse, **{"reset.weight": "1"})
    assert "weight 4 7" in told
    browse("operator").submit(asked.form("Change the policy"))
    assert _policy(engine).weight == 7


def test_a_plan_is_made_changed_and_removed(browse: Browse, engine: Engine, audit: Audit) -> None:
    """An operator makes a plan, changes it for all that follow it, and removes it when nobody does."""
    enqueue(engine, "customer-7")
    user = browse("operator")
    asked = user.submit(user.get("plan", queue="documents", plan="gold").form("Make the plan…"), weight="5")
    assert QUEUE.plans.list(engine) == []
    assert "weight 1 5" in asked.text
    page = user.submit(asked.form("Make the plan"))
    assert "The plan was changed." in page.text
    assert QUEUE.plans.list(engine)[0].policy == ChannelPolicy(weight=5)
    QUEUE.configure_channel(engine, "customer-7", plan="gold")
    page = user.get("plan", queue="documents", plan="gold")
    assert all(form.button != "Remove…" for form in page.forms)
    asked = user.submit(page.form("Preview the change…"), rate="10/s")
    assert "It holds for the 1 tenant that follow it" in asked.text
    user.submit(asked.form("Change the plan"))
    assert _policy(engine) == ChannelPolicy(weight=5, rate="10/s")
    QUEUE.configure_channel(engine, "customer-7", plan=None)
    asked = user.submit(user.get("plan", queue="documents", plan="gold").form("Remove…"))
    assert "The plan was removed." in user.submit(asked.form("Remove the plan")).text
    assert QUEUE.plans.list(engine) == []
    assert audit() == [
        "'otto' did plan on queue 'documents' plan='gold': weight: 1 -> 5",
        "'otto' did plan on queue 'documents' plan='gold': rate: no rate -> 10/s",
        "'otto' did remove_plan on queue 'documents' plan='gold': removed",
    ]
