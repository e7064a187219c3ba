"""Chromium without a window, and what a person does with it: open a page, read it, click, type, take a picture."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

WAIT_SECONDS = 60.0
_COLOURS = 128
_HEIGHT = 950
_PHONE = 500
_WIDEST = 1700
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1700,1400",
)
# What moves between finding an element and using it, as pages that load do.
_NOT_YET = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
Found = TypeVar("Found")


class NotSeenError(Exception):
    """What should have come about did not, in words."""


class Browser:
    """One window; ``patience``: how many times as long as usual it waits for anything."""

    def __init__(self, driver: webdriver.Chrome, address: str, patience: float = 1.0) -> None:
        self._driver = driver
        self._address = address
        self._patience = patience

    def open(self, path: str, *words: str) -> None:
        """Go to a page, and wait until it shows each of ``words``."""
        self._driver.get(f"{self._address}{path}")
        for word in words:
            self.see(word)

    @property
    def path(self) -> str:
        return self._driver.current_url.removeprefix(self._address)

    @property
    def text(self) -> str:
        """The words on the page."""
        return str(self._driver.execute_script("return document.body.innerText"))

    def see(self, words: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the page shows ``words``."""
        self.until(lambda: words in self.text, f"the words {words!r} on {self.path}", seconds)

    def until(self, found: Callable[[], Found | None], what: str, seconds: float = WAIT_SECONDS) -> Found:
        """What ``found`` finds, as soon as it finds something; raises NotSeenError after ``seconds``."""
        end = time.monotonic() + seconds * self._patience
        while True:
            try:
                result = found()
            except _NOT_YET:
                result = None
            if result:
                return result
            if time.monotonic() > end:
                raise NotSeenError(f"{seconds * self._patience:.0f} s went by without {what}")
            time.sleep(0.3)

    def all(self, xpath: str) -> list[WebElement]:
        """What is there now and can be seen."""
        return [one for one in self._driver.find_elements(By.XPATH, xpath) if one.is_displayed()]

    def click(self, xpath: str) -> None:
        """Click the first visible element, as soon as there is one that can be clicked."""

        def clicked() -> bool:
            one = next(iter(self.all(xpath)), None)
            if one is None or not one.is_enabled():
                return False
            one.click()
            return True

        self.until(clicked, f"anything to click at {xpath} on {self.path}")

    def hover(self, xpath: str) -> None:
        """Move the pointer over the first visible element, as soon as there is one."""
        [one, *_] = self.until(lambda: self.all(xpath), f"anything at {xpath} on {self.path}")
        ActionChains(self._driver).move_to_element(one).perform()

    def is_checked(self, xpath: str) -> bool:
        """Whether a checkbox is on, also one that is drawn as a switch and itself not to be seen."""
        return self._driver.find_element(By.XPATH, xpath).is_selected()

    def icons(self, xpath: str) -> list[str]:
        """The names of the icons within the first element."""
        named = self._driver.find_element(By.XPATH, xpath).find_elements(By.CSS_SELECTOR, "[role=img][aria-label]")
        return [str(one.get_attribute("aria-label")) for one in named]

    def press(self, label: str, *, inside: str = "") -> None:
        """Click the button that reads ``label``."""
        self.click(f"{inside}//button[normalize-space()='{label}']")

    def dialog(self, *words: str) -> str:
        """Wait for a dialog that holds each of ``words``; returns its text."""
        return self.until(
            lambda: next(
                (one.text for one in self.all("//*[@role='dialog']") if all(word in one.text for word in words)), None
            ),
            f"a dialog with {', '.join(words)} on {self.path}",
        )

    def type(self, xpath: str, values: list[str]) -> None:
        """Type a value into each of the visible fields, in order."""
        fields = self.until(
            lambda: found if len(found := self.all(xpath)) == len(values) else None, f"{len(values)} fields at {xpath}"
        )
        for one, value in zip(fields, values, strict=True):
            one.send_keys(value)

    def enter(self, xpath: str, words: str) -> None:
        """Click a field that is drawn by a script, type into it, and press Enter."""
        self.click(xpath)
        ActionChains(self._driver).send_keys(words).send_keys(Keys.ENTER).perform()

    def style(self, rule: str) -> None:
        """Draw this page by one more CSS rule, for its picture."""
        self._driver.execute_script(
            "const style = document.createElement('style'); style.textContent = arguments[0];"
            "document.head.appendChild(style);",
            rule,
        )

    def as_wide_as(self, pixels: int) -> None:
        """Show pages in a window of this width: narrower than a window can be made by hand, as a phone does."""
        self._measure(pixels, _HEIGHT, without_scroll_bars=pixels < _PHONE)

    def as_large_as(self, width: int, height: int) -> None:
        """Show pages in a window of this size."""
        self._measure(width, height, without_scroll_bars=False)

    def as_at_first(self) -> None:
        """Show pages in the window that the browser was started with."""
        self._driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def as_printed(self, pixels: int) -> None:
        """Show this page as it is printed on paper of this width."""
        self._measure(pixels, _HEIGHT, without_scroll_bars=True)
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    def _measure(self, width: int, height: int, *, without_scroll_bars: bool) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": without_scroll_bars}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def as_shown(self) -> None:
        """Show pages as on a screen again."""
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    def asked(self, script: str, *arguments: object) -> Any:
        """What a script returns that is run in the page."""
        return self._driver.execute_script(script, *arguments)

    def picture(self, file: Path) -> None:
        """A picture of the page as soon as nothing on it loads any more."""
        self.until(lambda: not self.all("//*[contains(@class, 'pinner')]"), f"{self.path} loaded")
        time.sleep(1)  # Lists and graphs glide to their places.
        self.snapshot(file)

    def snapshot(self, file: Path) -> None:
        """A picture of the page as it is now: PNG with a palette, so that it is small."""
        shot = Image.open(io.BytesIO(self._driver.get_screenshot_as_png())).convert("RGB")
        shot.thumbnail((_WIDEST, shot.height))
        file.parent.mkdir(parents=True, exist_ok=True)
        shot.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


@contextmanager
def browser(profile: Path, address: str, patience: float = 1.0) -> Iterator[Browser]:
    """Chromium with a profile of its own; ended in the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    # Ctrl-C is for this process: without its driver the browser could not be ended.
    service = webdriver.ChromeService(_program("chromedriver"), popen_kw={"start_new_session": True})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver, address, patience)
    finally:
        driver.quit()


def _program(*names: str) -> str:
    """The first of ``names`` that is installed; given to selenium so that it looks for nothing on the network."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise NotSeenError(f"there is no program called {' or '.join(names)} on PATH; install it first")
    return found
