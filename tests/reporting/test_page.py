"""The page of the report, and that about one tenant: one file, whole, safe, and readable by everybody."""

import re
from dataclasses import fields, replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_fairqueue.reporting import (
    Advice,
    ChannelCosts,
    ChannelFigures,
    HistoryEmpty,
    Objective,
    PlanFigures,
    Policy,
    QueueCosts,
    QueueFigures,
    RecordedHistory,
    Replay,
    ReplayedQueue,
    Report,
    Scenario,
    WindowFigures,
    formats,
)
from sqlalchemy_fairqueue.reporting import report as made_of
from sqlalchemy_fairqueue.reporting.page import DEFINITIONS, page_of, tenant_page_of
from sqlalchemy_fairqueue.reporting.reports import document_of
from tests.reporting.tables import known_policies, measure_table, table
from tests.reporting.values import HOSTILE, channel, queue, replayed, report
from tests.spark import report_history
from tests.spark.report_history import GIANT, nasty

_VOID = {"meta", "br", "hr", "img", "link", "input"}
_FETCHING = {"script", "img", "link", "iframe", "object", "image", "base", "form"}


class Page(HTMLParser):
    """What a page is made of; a tag that is not closed, or that nobody opened, fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.words = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words = " ".join([self.words, *data.split()])

    def every(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def check(self) -> None:
        """Ids are there once, and every reference leads to one. Nothing is fetched or run, which is forbidden too."""
        attributes = [one for _, found in self.elements for one in found.items()]
        ids = [str(value) for name, value in attributes if name == "id"]
        assert len(ids) == len(set(ids))
        references = {"href", "xlink:href", "aria-labelledby"}
        led_to = {str(value).removeprefix("#") for name, value in attributes if name in references}
        led_to |= set(re.findall(r"url\(#([^)]*)\)", self.text))
        assert led_to
        assert led_to <= set(ids)
        assert {tag for tag, _ in self.elements} & _FETCHING == set()
        assert not [name for name, _ in attributes if name.startswith("on")]
        assert not re.search(r"@import|url\((?!#)|https?://", self.text)
        policies = [one["content"] for one in self.every("meta") if one.get("http-equiv") == "Content-Security-Policy"]
        assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.fixture(scope="module")
def page() -> Page:
    """A page of hostile names everywhere."""
    return Page(page_of(report(*HOSTILE, queues=("documents", HOSTILE[1]), title=HOSTILE[0])))


def test_it_is_whole_and_needs_nothing_else(page: Page) -> None:
    """It is one file without scripts, and with one sheet of styles, whatever names there are."""
    page.check()
    assert len(page.every("style")) == 1


def test_names_stand_as_they_are(page: Page) -> None:
    """Whatever a tenant is called is shown as text; what does not print, as an escape."""
    shown = (*map(formats.name, HOSTILE[:4]), r"\u202eright to left\u2028\x1b[2J\x00", "k\u00f6ln \u6771\u4eac")
    assert [name for name in shown if name not in page.words] == []
    assert not re.search("[\u202e\u2028\x1b\x00]", page.text)


def test_it_can_be_read_without_looking(page: Page) -> None:
    """The page has a language, a title, one first heading and a main part; drawings and tables say what they are."""
    assert page.every("html") == [{"lang": "en"}]
    assert (len(page.every("h1")), len(page.every("main")), len(page.every("title"))) == (1, 1, 1)
    drawings = [one for one in page.every("svg") if "role" in one]
    assert drawings
    assert all(one["role"] == "img" and one["aria-label"] for one in drawings)
    assert len(page.every("caption")) == len(page.every("table")) > 0
    assert {one.get("scope") for one in page.every("th")} == {"col", "row", "rowgroup"}
    assert all(one["tabindex"] and one["aria-label"] for one in page.every("div") if one.get("role") == "region")


def test_every_figure_is_defined(page: Page) -> None:
    """Each figure's meaning and source stand on the page."""
    defined = [field for one in DEFINITIONS for field in one.fields]
    assert len(defined) == len(set(defined))
    kinds = (ChannelFigures, QueueFigures, WindowFigures, ReplayedQueue, ChannelCosts, QueueCosts, PlanFigures)
    expected = {field.name for kind in kinds for field in fields(kind)}
    assert set(defined) == expected
    for one in DEFINITIONS:
        assert one.meaning in page.words
        assert f"Source: {one.source}" in page.words


def test_replays_stand_beside_what_was(page: Page) -> None:
    """Each tenant that is compared has a row a scenario, and where one lacks it, that is said."""
    assert "first come, first served" in page.words
    assert "<b>others</b>" in page.words
    assert page.words.count("not in this replay") == len(HOSTILE) - 1


def test_the_first_screen_answers() -> None:
    """Who was denied its share, from when to when and because of whom, stands before all other figures; the policy to
    set stands with its replayed effect; nothing of it is folded away.
    """
    advice = Advice(
        "documents", "the 'whale'", before=timedelta(seconds=8), own_before=timedelta(seconds=9), max_concurrency=2,
        after=timedelta(seconds=1.5), own_after=timedelta(seconds=12),
    )  # fmt: skip
    made = report("minnow", "the 'whale'")
    again = Replay("as recorded, replayed", made.figures.channels, (), (replayed(error=0.08),))
    text = page_of(replace(made, advice=(advice,), replays=(again,), objective=Objective.parse("p95 < 1.5 s")))
    screen, _, rest = text.partition("<details")
    assert "because of" in screen
    assert rest
    words = Page(text).words
    for answer in (
        "minnow was denied most: it waited 40.0 s on average, at least 10.0 s of that",
        "2 of 2 tenants miss the target for waits, p95 < 1.5 s.",
        "minnow minnow (75.0 %), other (25.0 %) 10.0 s 40.0 s 2026-03-01 00:00:00 to 00:00:20",
        "Queue('documents').configure_channel(engine, \"the 'whale'\", max_concurrency=2)",
        "wait 1.50 s on average instead of 8.00 s, and the 'whale' 12.0 s instead of 9.00 s",
        "A replay of the record differs from it by 8.0 %.",
    ):
        assert answer in words[: words.index("The queue as a whole")]


def _words(made: Report, **values: Any) -> str:
    return Page(page_of(replace(made, **values))).words


def test_no_advice_has_a_reason() -> None:
    """Where no policy is advised, the page says why."""
    advice = Advice("documents", "whale", timedelta(seconds=8), timedelta(seconds=9), reason="it is of no use")
    assert "No policy is advised for whale: it is of no use." in _words(report("minnow"), advice=(advice,))


def test_labels_stand_for_names() -> None:
    """A label stands wherever the tenant's name would, but for the call that sets a policy."""
    advice = Advice("documents", "t-1", timedelta(8), timedelta(9), max_concurrency=1, after=timedelta(1))
    words = _words(report("t-1", "t-2"), advice=(advice,), labels={"t-1": "Ann & Co."})
    assert words.count("t-1") == 1
    assert "configure_channel(engine, 't-1', max_concurrency=1)" in words
    assert words.count("Ann & Co.") > 5


def replays_page(**values: Any) -> str:
    """The words of a page with a replay of what was and a forecast; values are those of the former's queue."""
    made = report("a")
    channels = made.figures.channels
    again = Replay("as recorded, replayed", channels, (), (replayed(**values),))
    forecast = Replay("one line", channels, (), (replayed(workers=2.5, estimated=False),))
    return _words(made, replays=(again, forecast))


def test_replays_show_their_workers_and_the_error() -> None:
    """Each scenario stands with its settings, its workers and where their number is from; what was, with its error."""
    words = replays_page(error=0.15, settings="in turn, fair by cost")

    assert "as recorded, replayed in turn, fair by cost 4.0 1 min 00 s of backlog 15.0 %" in words
    assert "one line 2.5 the scenario \u2013" in words
    assert "Do not trust" not in words


@pytest.mark.parametrize(
    ("values", "reasons"),
    [
        ({"replay_bias": -0.2}, ["The replay is faster than the record was"]),
        ({"replay_bias": 0.2}, ["The replay is slower than the record was"]),
        ({"least_workers": 2.0}, ["it was 2.0 at once in one quarter and 4.1 in another", "The replay is faster"]),
        ({"backlogged": timedelta()}, ["hardly ever backlogged", "4.0 at once is the most", "The replay is faster"]),
        ({"policies_known": False}, ["The policies of the record are not known", "The replay is faster"]),
    ],
)
def test_forecasts_far_from_the_record_are_not_to_be_trusted(values: dict[str, Any], reasons: list[str]) -> None:
    """Above 15 % the page says so, and what the replay did not know."""
    words = replays_page(error=0.151, **values)

    assert "Do not trust these forecasts: a replay of what was differs by more than 15.0 % from the record." in words
    every = ("faster than", "slower than", "The capacity changed", "hardly ever", "The policies of the record are not")
    assert all(reason in words for reason in reasons)
    assert sum(start in words for start in every) == len([one for one in reasons if "at once is" not in one])


def test_many_tenants() -> None:
    """The page of two thousand tenants shows those that were denied most, and says how many are left out."""
    text = page_of(report(*(f"tenant-{number}" for number in range(2_000))))
    assert len(text) < 1_000_000
    assert "1,900 that were denied less are left out" in text


def test_documents() -> None:
    """Figures are documents for programs: durations in seconds under names that say so, nested ones too."""
    document = document_of(channel("a"))
    assert document["mean_wait_seconds"] == 40
    assert document["wait"] == {"p50_seconds": 0.1, "p95_seconds": 2.0, "p99_seconds": 30.0, "max_seconds": 400.0}
    assert document["longest_starvation"]["lasted_seconds"] == 75
    assert document["policy"]["rate_interval_seconds"] == 1


@pytest.mark.spark
def test_frames() -> None:
    """Figures are frames of pandas, which comes with Spark, under the same names."""
    assert set(report("a").channels.columns) >= {"channel", "wait_p95", "mean_wait", "longest_starvation_lasted"}


def test_plans_stand_on_the_first_screen() -> None:
    """Where tenants follow plans, a table tells for each plan who was denied, who misses the target, and its parts."""
    made = report("a", "b", "c")
    gold = PlanFigures(
        queue="documents", plan="gold </td>", channels=1, attempts=10, wait=made.figures.channels[0].wait,
        mean_wait=timedelta(seconds=40), cost=None, part=0.25, denied_wait=timedelta(seconds=7), denied_channels=1,
        service=timedelta(minutes=3), service_part=0.6,
    )  # fmt: skip
    nobodys = replace(gold, plan=None, channels=2, part=0.75, denied_wait=timedelta(), denied_channels=0)
    first, *others = made.figures.channels
    first = replace(first, policy=Policy(plan=gold.plan))
    channels = (first, *(replace(one, policy=None) for one in others))
    figures = replace(made.figures, plans=(gold, nobodys), channels=channels)
    words = _words(made, figures=figures, objective=Objective.parse("p95 < 1 s"))
    table = words.partition("The queue as a whole")[0].partition("Plans of queue documents")[2]
    assert "gold </td> 1 1 7.00 s 40.0 s 2.00 s 1 25.0 % 60.0 %" in table
    assert "none 2 2 0 40.0 s 2.00 s 0 75.0 % 60.0 %" in table
    assert "Plans of queue" not in _words(made)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_about_a_tenant_is_whole_and_needs_nothing_else(name: str) -> None:
    """Links lead somewhere, nothing is fetched or run, and whatever the tenant is called is shown as text."""
    page = Page(tenant_page_of(report("other", name, queues=("documents", "mails")), name))
    page.check()
    assert formats.name(name) in page.words


def test_nobody_else_is_named(tmp_path: Path) -> None:
    """A page of a history with everything in it has the figures of one tenant, and no name of another."""
    rows = nasty(attempts=400)
    others = {one.channel for one in rows} - {"small-1"}
    path = tmp_path / "page.html"
    made = made_of(
        RecordedHistory(table(rows)), scenarios=[Scenario(name="one line", discipline="fifo")], tenant="small-1",
        output=path, objective="p95 < 1 s", labels={GIANT: "The big one"},
    )  # fmt: skip
    words = Page(path.read_text()).words
    assert [name for name in (*others, "The big one") if formats.name(name) in words] == []
    assert report_history.HOSTILE in others
    (one,) = (one for one in made.figures.of("documents") if one.channel == "small-1")
    shown = [formats.duration(value) for value in (one.mean_wait, one.wait.p95, one.denied_wait)]
    assert [text for text in (*shown, "one line", "is missed") if text not in words] == []
    assert len(made.figures.channels) > 10


def test_it_tells_denials_by_messages_and_by_cost() -> None:
    """When, by how much, and how much of it one other got; or that nothing was denied."""
    figures = measure_table(table(nasty()), policies=known_policies())
    made = replace(report("x"), figures=figures, replays=())
    denied: Any = next(one for one in figures.channels if one.denial and one.by_cost and one.by_cost.denial)
    text = Page(tenant_page_of(made, denied.channel)).words
    assert f"most of it from {formats.moment(denied.denial.from_)}" in text
    assert f"{formats.number(denied.by_cost.denied_cost)} more was the fair share" in text
    assert "by one other tenant" in text
    calm = replace(channel("calm"), denial=None)
    target = Objective("p95", timedelta(hours=1))
    made = replace(made, figures=replace(figures, queues=(queue(),), channels=(calm,)), objective=target)
    found = tenant_page_of(made, "calm")
    assert "No part of the fair share was denied" in found
    assert "is kept" in found


def test_a_tenant_that_is_not_there_is_named() -> None:
    """Before anything is measured."""
    history = RecordedHistory(table(nasty(attempts=3)))
    with pytest.raises(HistoryEmpty, match="no attempts of channel 'nobody'; name a channel as the queue has it"):
        made_of(history, tenant="nobody", output=None)
    with pytest.raises(HistoryEmpty, match="no attempts of channel 'nobody'"):
        tenant_page_of(report("x"), "nobody")
