"""The page about one tenant."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_fairqueue.reporting import HistoryEmpty, Objective, RecordedHistory, Scenario, formats, report
from sqlalchemy_fairqueue.reporting.page import tenant_page_of
from tests.reporting import values
from tests.reporting.tables import known_policies, measure_table, table
from tests.reporting.test_page import Page
from tests.spark.report_history import GIANT, HOSTILE, nasty


@pytest.mark.parametrize("name", values.HOSTILE)
def test_it_is_whole_and_needs_nothing_else(name: str) -> None:
    """Links lead somewhere, nothing is fetched or run, and whatever the tenant is called is shown as text."""
    page = Page(tenant_page_of(values.report("other", name, queues=("documents", "mails")), name))
    page.check()
    assert formats.name(name) in page.words


def test_nobody_else_is_named(tmp_path: Path) -> None:
    """A page of a history with everything in it has the figures of one tenant, and no name of another."""
    rows = nasty(attempts=400)
    others = {one.channel for one in rows} - {"small-1"}
    path = tmp_path / "page.html"
    made = report(
        RecordedHistory(table(rows)), scenarios=[Scenario(name="one line", discipline="fifo")], tenant="small-1",
        output=path, objective="p95 < 1 s", labels={GIANT: "The big one"},
    )  # fmt: skip
    words = Page(path.read_text()).words
    assert [name for name in (*others, "The big one") if formats.name(name) in words] == []
    assert HOSTILE in others
    (one,) = (one for one in made.figures.of("documents") if one.channel == "small-1")
    shown = [formats.duration(value) for value in (one.mean_wait, one.wait.p95, one.denied_wait)]
    assert [text for text in (*shown, "one line", "is missed") if text not in words] == []
    assert len(made.figures.channels) > 10


def test_it_tells_denials_by_messages_and_by_cost() -> None:
    """When, by how much, and how much of it one other got; or that nothing was denied."""
    figures = measure_table(table(nasty()), policies=known_policies())
    made = replace(values.report("x"), figures=figures, replays=())
    denied: Any = next(one for one in figures.channels if one.denial and one.by_cost and one.by_cost.denial)
    text = Page(tenant_page_of(made, denied.channel)).words
    assert f"most of it from {formats.moment(denied.denial.from_)}" in text
    assert f"{formats.number(denied.by_cost.denied_cost)} more was the fair share" in text
    assert "by one other tenant" in text
    calm = replace(values.channel("calm"), denial=None)
    target = Objective("p95", timedelta(hours=1))
    made = replace(made, figures=replace(figures, queues=(values.queue(),), channels=(calm,)), objective=target)
    found = tenant_page_of(made, "calm")
    assert "No part of the fair share was denied" in found
    assert "is kept" in found


def test_a_tenant_that_is_not_there_is_named() -> None:
    """Before anything is measured."""
    history = RecordedHistory(table(nasty(attempts=3)))
    with pytest.raises(HistoryEmpty, match="no attempts of channel 'nobody'; name a channel as the queue has it"):
        report(history, tenant="nobody", output=None)
    with pytest.raises(HistoryEmpty, match="no attempts of channel 'nobody'"):
        tenant_page_of(values.report("x"), "nobody")
