"""The pages in a real browser: a Chromium of the machine, if it has one."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    SessionNotCreatedException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue
from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from tests.cli.messages import ODD_NAMES, QUEUE, bury, enqueue, lease
from tests.dashboard.conftest import served
from tests.dashboard.scenario import busy, set_aside

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
_PAGES = (
    "",
    "tenants",
    "tenants?queue=documents",
    "plans",
    "plan?queue=documents&plan=gold",
    "dead",
    "schedules",
    "workers",
    "health",
)
_PATIENCE = 60

pytestmark = pytest.mark.skipif(not (_CHROMIUM and _DRIVER), reason="no Chromium with its driver on this machine")


@dataclass
class Chromium:
    """A browser at the dashboard."""

    driver: Any
    address: str

    def open(self, page: str = "") -> None:
        """Open a page, which comes when the first figures are there."""
        self.driver.get(f"{self.address}/{page}")
        WebDriverWait(self.driver, _PATIENCE).until(
            lambda driver: not driver.find_elements(By.CSS_SELECTOR, "main[data-unread]")
        )

    @property
    def text(self) -> str:
        """What the page shows."""
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    def click(self, button: str) -> None:
        """Press a button, by its text."""
        self._patiently(lambda: self.driver.find_element(By.XPATH, f"//button[normalize-space()='{button}']").click())

    def fill(self, field: str, text: str) -> None:
        """Write into a field what it has not."""

        def write() -> None:
            found = self.driver.find_element(By.NAME, field)
            found.send_keys(Keys.CONTROL, "a")
            found.send_keys(text)

        self._patiently(write)

    def choose(self, field: str, text: str) -> None:
        """Choose an option, by its text."""
        self._patiently(lambda: Select(self.driver.find_element(By.NAME, field)).select_by_visible_text(text))

    def tick(self, field: str) -> None:
        """Tick a box."""
        self._patiently(lambda: self.driver.find_element(By.NAME, field).click())

    def press(self, button: str, *then: str) -> None:
        """Press a button and wait for a text; and again, as often as there are more of both."""
        for press, words in zip((button, *then[1::2]), then[::2], strict=True):
            self.click(press)
            self.wait_for(words)

    def _patiently(self, act: Callable[[], None]) -> None:
        """Do something with an element that new figures may replace at this moment."""
        waiting = WebDriverWait(self.driver, _PATIENCE, ignored_exceptions=[StaleElementReferenceException])

        def done(_: object) -> bool:
            act()
            return True

        waiting.until(done)

    def wait_for(self, text: str) -> None:
        """Wait until the page shows a text."""
        # A page that goes away at this moment has elements that are stale, or of no document.
        waiting = WebDriverWait(self.driver, _PATIENCE, ignored_exceptions=[WebDriverException])
        waiting.until(lambda _: text in self.text)

    def resize(self, width: int, height: int) -> None:
        """Give the page a size, that of a phone too."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def dark(self, wanted: str = "dark") -> None:
        """Prefer a colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": wanted}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(script))

    def complaints(self) -> list[str]:
        """What the browser complains of: scripts that fail, what the policy forbids, files that are not there."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


Open = Callable[..., Chromium]


@pytest.fixture
def chromium(engine: Engine, tmp_path: Path) -> Iterator[Open]:
    """Open a browser as an operator: ``chromium(scripts=False)``."""
    opened: list[Any] = []
    access = Access("dana@example.com", Role.OPERATOR, payloads=True)
    app = create_dashboard(engine, authorize=lambda _: access, keep=timedelta(milliseconds=200))

    with served(app) as address:

        def begin(*, scripts: bool = True) -> Chromium:
            options = Options()
            options.binary_location = _CHROMIUM or ""
            for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
                options.add_argument(argument)
            options.add_argument(f"--user-data-dir={tmp_path}/{len(opened)}")
            if not scripts:
                options.add_argument("--blink-settings=scriptEnabled=false")
            try:
                driver = webdriver.Chrome(options=options, service=Service(_DRIVER))
            except SessionNotCreatedException as error:
                pytest.skip(f"the machine's Chromium does not start: {error.msg}")
            driver.set_page_load_timeout(_PATIENCE)
            driver.set_script_timeout(_PATIENCE)
            opened.append(driver)
            browser = Chromium(driver, address)
            browser.resize(1280, 900)
            return browser

        try:
            begin.figures = app.state.reading.figures  # type: ignore[attr-defined]
            yield begin
        finally:
            for driver in opened:
                driver.quit()


def test_every_page_at_every_width(chromium: Open, engine: Engine) -> None:
    """No page is wider than a phone or a desk, and the browser complains of nothing, whatever the names are."""
    hostile = "<img src=x onerror=alert(1)>"
    QUEUE.configure(engine, history=True)
    QUEUE.configure_plan(engine, hostile, weight=2)
    QUEUE.configure_channel(engine, hostile, plan=hostile, max_concurrency=1)
    QUEUE.schedule(engine, hostile, channel=hostile, every=timedelta(hours=1), kind=hostile)
    for name in ODD_NAMES:
        enqueue(engine, name, name)
    [tried] = enqueue(engine, hostile, kind=hostile)
    [tried_too, *_] = lease(engine, 99)
    QUEUE.retry(engine, tried_too, delay=timedelta(0), error=hostile * 9)
    [dead] = bury(engine, hostile)
    set_aside(engine, hostile, 900, words=hostile * 9)
    [message] = enqueue(engine, "customer-7", payload={"long": "x" * 2000, hostile: hostile})
    with Session(engine) as session, session.begin(), QUEUE.group(session) as group:
        group.enqueue_many([Enqueue(channel=hostile, payload=1)])
    browser = chromium()
    ids = {"message": (message, dead, tried, tried_too.message_id)}
    pages = [f"message?queue=documents&id={one}" for one in ids["message"]]
    pages += [f"tenant?{urlencode({'queue': 'documents', 'channel': name})}" for name in ("customer-7", hostile)]
    pages += [f"plan?{urlencode({'queue': 'documents', 'plan': hostile})}", f"group?queue=documents&group={group.id}"]
    for page in (*_PAGES, *pages):
        for width in (360, 1280):
            browser.resize(width, 800)
            browser.open(page)
            assert browser.overflow() <= 0, (page, width)
            assert browser.driver.find_elements(By.TAG_NAME, "img") == []
    assert browser.complaints() == []


def test_dark(chromium: Open) -> None:
    """Who prefers the dark gets it: light text on a dark ground."""
    browser = chromium()
    seen = {}
    for scheme in ("light", "dark"):
        browser.dark(scheme)
        browser.open()
        script = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        seen[scheme] = [sum(map(int, colour[4:-1].split(","))) for colour in browser.driver.execute_script(script)]
    assert seen["light"][0] > seen["light"][1]
    assert seen["dark"][0] < seen["dark"][1]


def test_keyboard(chromium: Open, engine: Engine) -> None:
    """Without a mouse: the first tab skips to the content, and links are reached and opened."""
    enqueue(engine, "customer-7")
    browser = chromium()
    browser.open()
    keys = browser.driver.find_element(By.TAG_NAME, "body")
    keys.send_keys(Keys.TAB)
    assert browser.driver.switch_to.active_element.text == "Skip to the content"
    for _ in range(30):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        if browser.driver.switch_to.active_element.text == "Tenants":
            break
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.wait_for("1 tenant waits")


def test_new_figures_come_by_themselves(chromium: Open, engine: Engine) -> None:
    """An open page shows what is new; it stops where somebody wants that, and while they edit."""
    enqueue(engine, "customer-7")
    browser = chromium()
    browser.open("tenants")
    browser.wait_for("customer-7")
    enqueue(engine, "customer-8")
    browser.wait_for("customer-8")
    browser.open("tenant?queue=documents&channel=customer-7")
    browser.fill("weight", "5")
    enqueue(engine, "customer-7")
    for _ in range(2):
        # Two more events, of which neither may take the field away.
        told = "const done = arguments[0], told = new EventSource('live'); let n = 0;"
        told += "told.addEventListener('figures', () => { if (++n > 1) { told.close(); done(n); } })"
        assert browser.driver.execute_async_script(told) == 2
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


def test_figures_stand_still_on_demand(chromium: Open, engine: Engine) -> None:
    """The button Live stops new figures, says so, and lets them come again."""
    enqueue(engine, "customer-7")
    browser = chromium()
    browser.open("tenants")
    browser.click("Live")
    browser.wait_for("Paused")
    enqueue(engine, "customer-8")
    script = "const done = arguments[0]; new EventSource('live').addEventListener('figures', () => done(1))"
    browser.driver.execute_async_script(script)
    assert "customer-8" not in browser.text
    browser.click("Paused")
    browser.wait_for("customer-8")


def test_actions(chromium: Open, engine: Engine) -> None:
    """Buttons do what they say, after a question where it cannot be undone, and the policy forbids none of it."""
    enqueue(engine, "customer-7", "customer-7")
    browser = chromium()
    browser.open("tenant?queue=documents&channel=customer-7")
    browser.click("Pause")
    browser.wait_for("Paused.")
    assert QUEUE.channels(engine, "customer-7")[0].paused_at is not None
    browser.fill("weight", "4")
    browser.click("Preview the change…")
    browser.wait_for("Change the policy of")
    browser.click("Change the policy")
    browser.wait_for("The policy was changed.")
    assert QUEUE.channels(engine, "customer-7")[0].weight == 4
    browser.click("Purge…")
    browser.wait_for("Delete 2 ready and scheduled messages")
    browser.click("Delete them")
    browser.wait_for("Purged 2.")
    assert QUEUE.stats(engine).ready == 0
    assert browser.complaints() == []


def test_every_other_action(chromium: Open, engine: Engine) -> None:
    """Plans, messages, groups, dead letters and schedules: each button does what it says."""
    QUEUE.configure_plan(engine, "gold", weight=5)
    QUEUE.schedule(engine, "nightly", channel="customer-7", every=timedelta(hours=1), kind="report")
    [moved, cancelled] = enqueue(engine, "customer-7", "customer-7")
    with Session(engine) as session, session.begin(), QUEUE.group(session) as group:
        group.enqueue_many([Enqueue(channel="customer-9", payload=1)])
    browser = chromium()
    tenant = "tenant?queue=documents&channel=customer-7"
    browser.open(tenant)
    browser.choose("plan", "gold")
    browser.press("Preview the change…", "Change the policy of", "Change the policy", "The policy was changed.")
    browser.fill("weight", "3")
    browser.press("Preview the change…", "Change the policy of", "Change the policy", "The policy was changed.")
    browser.tick("reset.weight")
    browser.press("Preview the change…", "weight 3 5", "Change the policy", "The policy was changed.")
    [stats] = QUEUE.channels(engine, "customer-7")
    assert (stats.plan, stats.weight, stats.overridden) == ("gold", 5, ())
    browser.open("plan?queue=documents&plan=silver")
    browser.fill("rate", "5/s")
    browser.press("Make the plan…", "Make the plan 'silver'?", "Make the plan", "The plan was changed.")
    browser.press("Remove…", "Remove the plan 'silver'?", "Remove the plan", "The plan was removed.")
    browser.open(f"message?queue=documents&id={moved}")
    browser.fill("to", "customer-8")
    browser.press("Move…", "There is no such tenant yet", "Move the message", "Moved.")
    browser.open(f"message?queue=documents&id={cancelled}")
    browser.press("Cancel…", "Cancel message", "Cancel the message", "Cancelled.")
    browser.open(f"group?queue=documents&group={group.id}")
    browser.press("Cancel…", "Cancel the 1 member", "Cancel them", "Cancelled: 1.")
    browser.open("schedules")
    browser.press("Run now", "Enqueued as message")
    browser.press("Pause", "The schedule is paused.")
    browser.press("Resume", "The schedule goes on.")
    bury(engine, "customer-1", kind="parse")
    browser.open("dead")
    browser.press("Redrive", "Redriven: 1.")
    bury(engine, "customer-1", kind="parse")
    browser.open("dead")
    browser.press("Purge…", "for good?", "Delete them", "Purged for good: ")
    assert QUEUE.dead_letters(engine) == []
    set_aside(engine, "customer-1", 900)
    set_aside(engine, "customer-1", 901, lost=True)
    browser.open("dead")
    browser.press("Put back", "Put back: it is due now")
    browser.press("Delete…", "from the quarantine for good?", "Delete it", "Deleted from the quarantine: 1.")
    assert QUEUE.quarantined(engine) == []
    assert browser.complaints() == []


def test_an_action_by_keyboard(chromium: Open, engine: Engine) -> None:
    """Without a mouse: a field is reached, changed and sent, and the question is answered."""
    enqueue(engine, "customer-7")
    browser = chromium()
    browser.open("tenant?queue=documents&channel=customer-7")
    for _ in range(60):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        if browser.driver.switch_to.active_element.get_attribute("name") == "weight":
            break
    browser.driver.switch_to.active_element.send_keys("4", Keys.ENTER)
    browser.wait_for("Change the policy of")
    for _ in range(30):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        if browser.driver.switch_to.active_element.text == "Change the policy":
            break
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.wait_for("The policy was changed.")
    assert QUEUE.channels(engine, "customer-7")[0].weight == 4


def test_without_scripts(chromium: Open, engine: Engine) -> None:
    """Without JavaScript each page is readable, and actions work."""
    enqueue(engine, "customer-7")
    browser = chromium(scripts=False)
    for page in _PAGES:
        browser.open(page)
        assert "Fair queues" in browser.text
    browser.open("tenants")
    assert "customer-7" in browser.text
    browser.driver.find_element(By.LINK_TEXT, "customer-7").click()
    browser.click("Pause")
    browser.wait_for("Paused.")


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
        assert browser.driver.save_screenshot(str(folder / f"dashboard-{name}.png"))
