"""The pages in a real browser: a Chromium of the machine, if it has one."""

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sqlalchemy import Engine, text

from sqlalchemy_fairqueue import Queue
from tests.cli.messages import ODD_NAMES, QUEUE, bury, enqueue, enqueue_group, lease
from tests.dashboard.chromium import MISSING, Chromium, Open, chromium
from tests.dashboard.scenario import busy, set_aside
from tests.dashboard.test_pages import PAGES

_PAGES = (
    *("messages?queue=documents", "messages?queue=documents&state=completed", "audit", "tenants?queue=documents"),
    *("plan?queue=documents&plan=gold", *PAGES),
)
__all__ = ["chromium"]

_PICTURE_BYTES = 150_000
_LEVELS = 8
"""By how many of 256 levels a colour of a picture may differ from the page's."""

pytestmark = pytest.mark.skipif(MISSING, reason="no Chromium with its driver on this machine")


_HOSTILE = "<img src=x onerror=alert(1)>"
_SCRIPT = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"


def _hostile_pages(engine: Engine) -> list[str]:
    """Make queues, tenants, plans and messages whose names and contents are hostile; returns the pages of single ones.

    All pages are those of lists and these.
    """
    hostile, documents = _HOSTILE, {"queue": "documents"}
    QUEUE.configure(engine, history=True, result_retention=timedelta(days=1))
    for plan in ("gold", hostile):
        QUEUE.plans.configure(engine, plan, weight=2)
    QUEUE.configure_channel(engine, hostile, plan=hostile, max_concurrency=1)
    QUEUE.schedules.set(engine, hostile, channel=hostile, every=timedelta(hours=1), kind=hostile)
    for name in ODD_NAMES:
        enqueue(engine, name, name)
    [tried] = enqueue(engine, hostile, kind=hostile)
    [tried_too, *_] = lease(engine, 99)
    QUEUE.retry(engine, tried_too, delay=timedelta(0), error=hostile * 9)
    [dead] = bury(engine, hostile)
    enqueue(engine, "customer-6")
    [done] = lease(engine, 1)
    QUEUE.complete(engine, done, result={hostile: hostile * 9, "long": "secret" * 350})
    lease(engine, 99)
    QUEUE.admin.stop_worker(engine, QUEUE.admin.consumers(engine)[0].consumer, by=hostile * 3)
    set_aside(engine, hostile, words=hostile * 9)
    [message] = enqueue(engine, "customer-7", payload={"long": "secret" * 350, hostile: hostile})
    enqueue(engine, "a", queue=Queue(hostile))
    group = enqueue_group(engine, hostile)
    ids = (message, dead, tried, tried_too.message_id, done.message_id)
    pages = [("message", documents | {"id": str(one)}) for one in ids]
    pages += [("tenant", documents | {"channel": name}) for name in ("customer-7", hostile)]
    pages += [("tenants", {"queue": hostile}), ("tenant", {"queue": hostile, "channel": "a"})]
    pages += [("plan", documents | {"plan": hostile}), ("group", documents | {"group": group})]
    return [f"{page}?{urlencode(query)}" for page, query in pages]


@pytest.mark.parametrize("user", ["operator", "viewer"])
def test_every_page_at_every_width_and_in_both_schemes(chromium: Open, engine: Engine, user: str) -> None:
    """Whatever the names are, no page is wider than a phone or a desk, and the browser complains of nothing.

    In the dark it is light on dark. A viewer sees neither payloads nor buttons that change anything.
    """
    pages = (*_PAGES, *_hostile_pages(engine))
    browser = chromium(user)
    for page in pages:
        for width in (360, 900, 1280, 1440):
            browser.resize(width, 800)
            browser.open(page)
            assert browser.driver.find_elements(By.TAG_NAME, "img") == []
            for scheme in ("light", "dark"):
                browser.dark(scheme)
                assert browser.overflow() <= 0, (page, width, scheme)
                colours = browser.driver.execute_script(_SCRIPT)
                ground, ink = (sum(map(int, colour[4:-1].split(","))) for colour in colours)
                assert (ground < ink) == (scheme == "dark"), (page, width)
        forms = browser.driver.find_elements(By.CSS_SELECTOR, "form[method=post]")
        if user == "viewer":
            assert forms == [], page
            assert "secretsecret" not in browser.text, page
    assert browser.complaints() == []


def test_every_page_by_keyboard(chromium: Open, engine: Engine) -> None:
    """Without a mouse: the first tab skips to the content; each page is reached from the first by tab and enter, and a
    tenant and a message from there.
    """
    [message] = enqueue(engine, "customer-7")
    browser = chromium()
    browser.open()
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.driver.switch_to.active_element.text == "Skip to the content"
    for link, words in (
        ("Plans", "which tenants follow"), ("Groups", "Messages with a follow-up"),
        ("Dead letters", "will not be tried again"), ("Schedules", "enqueued at their times"),
        ("Workers", "with a lease that has not expired"), ("Health", "made anew each minute"),
        ("Overview", "Who waits longest"), ("Tenants", "1 tenant waits"),
        ("customer-7", "Share of the consumers"), (f"#{message}", "What happened"),
    ):  # fmt: skip
        browser.follow(link)
        browser.wait_for(words)
    assert browser.complaints() == []


def test_new_figures_come_by_themselves(chromium: Open, engine: Engine) -> None:
    """An open page shows what is new; not while somebody edits it, nor between two presses of the button Live."""
    enqueue(engine, "customer-7")
    browser = chromium()

    def until_told_of(events: int) -> None:
        told = "const done = arguments[0], told = new EventSource('live'); let n = 0;"
        told += f"told.addEventListener('figures', () => {{ if (++n >= {events}) {{ told.close(); done(n); }} }})"
        assert browser.driver.execute_async_script(told) == events

    browser.open("tenants")
    browser.wait_for("customer-7")
    enqueue(engine, "customer-8")
    browser.wait_for("customer-8")
    browser.press("Live", "Paused")
    enqueue(engine, "customer-9")
    until_told_of(1)
    assert "customer-9" not in browser.text
    browser.press("Paused", "customer-9")
    browser.open("tenant?queue=documents&channel=customer-7")
    browser.fill("weight", "5")
    enqueue(engine, "customer-7")
    # Neither of two may take the field away.
    until_told_of(2)
    assert browser.driver.find_element(By.NAME, "weight").get_attribute("value") == "5"
    assert browser.complaints() == []


@pytest.mark.parametrize("scripts", [True, False])
def test_the_first_figures(chromium: Open, engine: Engine, *, scripts: bool) -> None:
    """A page that is opened before the first figures are there comes at once, and shows them when they are."""
    enqueue(engine, "customer-7")
    page = chromium(scripts=scripts)
    with engine.begin() as held:
        held.execute(text("lock table fq_queue_state"))
        page.driver.get(f"{page.address}/tenants")
        page.wait_for("The figures are being read")
    page.wait_for("customer-7")
    assert page.complaints() == []


_CHANGE = ("Preview the change…", "Change the policy of", "Change the policy", "The policy was changed.")


@pytest.mark.parametrize("keyboard", [False, True], ids=["mouse", "keyboard"])
def test_actions(chromium: Open, engine: Engine, *, keyboard: bool) -> None:
    """Of tenants, plans and messages: buttons do what they say, after a question where it cannot be undone, and the
    policy of the pages forbids none of it.
    """
    QUEUE.plans.configure(engine, "gold", weight=5)
    moved, cancelled, _, _ = enqueue(engine, *["customer-7"] * 4)
    [later] = enqueue(engine, "customer-7", delay=timedelta(days=1))
    browser = chromium()
    browser.keyboard = keyboard
    browser.open("tenant?queue=documents&channel=customer-7")
    browser.press("Pause", "Paused.", "Resume", "Resumed.")
    browser.choose("plan", "gold")
    browser.press(*_CHANGE)
    browser.fill("weight", "3")
    browser.press(*_CHANGE)
    browser.tick("reset.weight")
    browser.press("Preview the change…", "weight 3 5", *_CHANGE[2:])
    [stats] = QUEUE.channels(engine, "customer-7")
    assert (stats.plan, stats.weight, stats.overridden) == ("gold", 5, ())
    _make_a_plan(browser)
    browser.press("Remove…", "Remove the plan 'silver'?", "Remove the plan", "The plan was removed.")
    browser.open(f"message?queue=documents&id={moved}")
    browser.fill("to", "customer-8")
    browser.press("Move…", "There is no such tenant yet", "Move the message", "Moved.")
    browser.open(f"message?queue=documents&id={later}")
    browser.press("Run now", "It is due now.")
    browser.open(f"message?queue=documents&id={cancelled}")
    browser.press("Cancel…", "Cancel message", "Cancel the message", "Cancelled.")
    browser.open("tenant?queue=documents&channel=customer-7")
    browser.press("Purge…", "Delete 3 undelivered messages", "Delete them", "Purged 3.")
    assert browser.complaints() == []


@pytest.mark.parametrize("keyboard", [False, True], ids=["mouse", "keyboard"])
def test_actions_on_lists(chromium: Open, engine: Engine, *, keyboard: bool) -> None:
    """So they do of groups, schedules, dead letters and workers."""
    QUEUE.schedules.set(engine, "nightly", channel="customer-9", every=timedelta(hours=1), kind="report")
    bury(engine, "customer-1", "customer-2", kind="parse")
    browser = chromium()
    browser.keyboard = keyboard
    _cancel_a_group(browser, engine)
    browser.open("schedules")
    browser.press("Run now", "Enqueued as", "Pause", "The schedule is paused.", "Resume", "The schedule goes on.")
    browser.open("dead")
    browser.press("Redrive", "Redriven: 2.")
    bury(engine, "customer-1", kind="parse")
    browser.open("dead")
    browser.press("Purge…", "for good?", "Delete them", "Purged for good: ")
    assert QUEUE.dead_letters.list(engine) == []
    lease(engine, 1)
    browser.open("workers")
    browser.press("Stop…", "to stop?", "Ask it to stop", "Asked: within seconds")
    assert browser.complaints() == []


def _make_a_plan(browser: Chromium) -> None:
    browser.open("plan?queue=documents&plan=silver")
    browser.fill("rate", "5/s")
    browser.press("Make the plan…", "Make the plan 'silver'?", "Make the plan", "The plan was changed.")


def _cancel_a_group(browser: Chromium, engine: Engine) -> None:
    group = enqueue_group(engine, "customer-9")
    browser.open(f"group?queue=documents&group={group}")
    browser.press("Cancel…", "Cancel the 1 member", "Cancel them", "Cancelled: 1.")


def test_without_scripts(chromium: Open, engine: Engine) -> None:
    """Without JavaScript each page is readable, and actions work."""
    pages = _hostile_pages(engine)
    browser = chromium(scripts=False)
    for page in (*_PAGES, *pages):
        browser.open(page)
        assert "As of" in browser.text, page
    browser.open("tenants")
    assert _HOSTILE in browser.text
    browser.driver.find_element(By.LINK_TEXT, "customer-7").click()
    browser.press("Pause", "Paused.")
    _make_a_plan(browser)
    _cancel_a_group(browser, engine)


def test_pictures(chromium: Open, engine: Engine, tmp_path: Path) -> None:
    """The pictures of the documentation are of these pages; FAIRQUEUE_PICTURES names the folder to put them into."""
    folder = Path(os.environ.get("FAIRQUEUE_PICTURES", tmp_path))
    tried = busy(engine, chromium.figures)  # type: ignore[attr-defined]
    browser = chromium()
    pictures = (
        ("overview", "", "light", 1280), ("tenants", "tenants?queue=documents", "light", 1280),
        ("tenants-dark", "tenants?queue=documents", "dark", 1280),
        ("tenants-phone", "tenants?queue=documents", "light", 390),
        ("tenant", "tenant?queue=documents&channel=globex", "light", 1280), ("dead", "dead", "light", 1280),
        ("plans", "plans?queue=documents", "light", 1280),
        ("message", f"message?queue=documents&id={tried}", "light", 1280),
    )  # fmt: skip
    for name, page, scheme, width in pictures:
        browser.dark(scheme)
        browser.resize(width, 844)
        browser.open(page)
        browser.wait_for("As of")
        height = browser.driver.execute_script("return document.documentElement.scrollHeight")
        browser.resize(width, min(int(height), 1100))
        picture = folder / f"dashboard-{name}.png"
        assert browser.driver.save_screenshot(str(picture))
        if folder != tmp_path:
            _reduce(picture)
            assert picture.stat().st_size < _PICTURE_BYTES


def _reduce(picture: Path) -> None:
    """Give a picture a palette of 256 colours, none of which the eye tells from the original."""
    from PIL import Image, ImageChops  # noqa: PLC0415 - installed with the extra demo

    with Image.open(picture) as opened:
        original = opened.convert("RGB")
    reduced = original.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    levels = ImageChops.difference(original, reduced.convert("RGB")).histogram()
    assert max(place % 256 for place, pixels in enumerate(levels) if pixels) <= _LEVELS
    reduced.save(picture, "PNG", optimize=True)
