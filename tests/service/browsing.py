"""A real browser on a page, for those tests that look at one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

PATIENCE = 120_000.0  # milliseconds; reached only where something is broken
expect.set_options(timeout=PATIENCE)


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, as the system has it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("the page is tested in Chromium, which is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def opened(browser: Browser, url: str, *, width: int = 1280, scheme: Any = "light") -> Iterator[Page]:
    """A page that must not complain or ask anybody else; ``page.said`` is what it did say."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.said = said  # type: ignore[attr-defined]
    page.goto(url)
    yield page
    assert [one for one in asked if not one.startswith(f"{url}/")] == []
    assert said == []
    context.close()


def log_in(page: Page, key: str) -> None:
    page.get_by_label("Operator’s key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Live")


def findings(page: Page) -> list[str]:
    """What axe-core finds, serious or not."""
    found = Axe().run(page).response["violations"]
    return [f"{one['id']} ({one['impact']}): {one['nodes'][0]['html']}" for one in found]
