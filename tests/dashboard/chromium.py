"""A Chromium of the machine at the dashboard, driven by tests."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common import exceptions
from selenium.common.exceptions import SessionNotCreatedException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from sqlalchemy import Engine

from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from tests.dashboard.conftest import served

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
_PATIENCE = 60

MISSING = not (_CHROMIUM and _DRIVER)
"""Whether the machine has none."""


@dataclass
class Chromium:
    """A browser at the dashboard.

    Attributes:
        driver: The driver.
        address: Of the dashboard.
        keyboard: Whether buttons, fields, choices and boxes are reached and used by keys alone.
    """

    driver: Any
    address: str
    keyboard: bool = False

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
        if self.keyboard:
            self._go_to("button", button)
            return
        self._patiently(lambda: self.driver.find_element(By.XPATH, f"//button[normalize-space()='{button}']").click())

    def fill(self, field: str, text: str) -> None:
        """Write into a field what it has not."""

        def write() -> None:
            found = self._field(field)
            found.send_keys(Keys.CONTROL, "a")
            found.send_keys(text)

        self._patiently(write)

    def choose(self, field: str, text: str) -> None:
        """Choose an option, by its text."""
        self._patiently(lambda: self._field(field).send_keys(text))

    def tick(self, field: str) -> None:
        """Tick a box."""
        self._patiently(lambda: self._field(field).send_keys(Keys.SPACE))

    def _field(self, name: str) -> Any:
        """A field by its name, reached by the tab key where there is no mouse."""
        if not self.keyboard:
            return self.driver.find_element(By.NAME, name)
        return self._tab_to(lambda active: active.get_attribute("name") == name, name)

    def _tab_to(self, is_it: Callable[[Any], bool], what: str) -> Any:
        for _ in range(120):
            active = self.driver.switch_to.active_element
            if is_it(active):
                return active
            active.send_keys(Keys.TAB)
        raise AssertionError(f"{what!r} is not reached")

    def press(self, button: str, *then: str) -> None:
        """Press a button and wait for a text; and again, as often as there are more of both."""
        for press, words in zip((button, *then[1::2]), then[::2], strict=True):
            self.click(press)
            self.wait_for(words)

    def _patiently(self, act: Callable[[], None]) -> None:
        """Do something with an element that new figures or another page may replace at this moment."""
        replaced = [exceptions.StaleElementReferenceException, exceptions.ElementNotInteractableException]

        def done(_: object) -> bool:
            act()
            return True

        WebDriverWait(self.driver, _PATIENCE, ignored_exceptions=replaced).until(done)

    def follow(self, link: str) -> None:
        """Reach a link by the tab key, and follow it by the enter key."""
        self._go_to("a", link)

    def _go_to(self, tag: str, text: str) -> None:
        def reach() -> None:
            self._tab_to(lambda active: active.tag_name == tag and active.text == text, text).send_keys(Keys.ENTER)

        self._patiently(reach)

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
    """Open a browser as an operator or a viewer: ``chromium("viewer", scripts=False)``."""
    opened: list[Any] = []
    users = {"operator": Access("dana@example.com", Role.OPERATOR, payloads=True), "viewer": Access("vera@example.com")}
    now = ["operator"]
    app = create_dashboard(engine, authorize=lambda _: users[now[0]], keep=timedelta(milliseconds=200))

    with served(app) as address:

        def begin(user: str = "operator", *, scripts: bool = True) -> Chromium:
            now[0] = user
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
