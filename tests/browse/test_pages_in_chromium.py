"""The pages in a real browser: scrolling, filters, histograms, samples, keys, widths, colours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browse_kit import TOKEN, Serve, Served
from playwright.sync_api import Browser, Page, sync_playwright

from data_stack import SequenceDatasetIterator

CHROMIUM = "/usr/bin/chromium"
SCREENSHOTS = os.environ.get("DATA_STACK_SCREENSHOTS")  # a folder, to look at them

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not os.path.exists(CHROMIUM), reason=f"there is no {CHROMIUM}: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (400, "dark")], ids=["1280 light", "400 dark"])
def page(request: pytest.FixtureRequest, chromium: Browser, serve: Serve) -> Iterator[Page]:
    """An empty page, closed before ``serve`` ends; it must have raised nothing, and its server
    refused nothing.
    """
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
    yield page
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{request.node.name}.png")
    context.close()
    assert complaints == []


def visit(page: Page, served: Served) -> None:
    """Open the page, and wait for its samples."""
    page.goto(f"{served.url}/?token={TOKEN}")
    page.wait_for_selector("#item-0 .caption, #item-0 span, #empty:not([hidden])")
    if page.is_visible("#toggle"):
        page.click("#toggle")


def status(page: Page, text: str) -> None:
    """Wait until the page tells this number of samples."""
    page.wait_for_function(
        "text => document.getElementById('status').textContent === text", arg=text
    )


def test_scrolling_loads_samples_and_keeps_few_nodes(page: Page, serve: Serve) -> None:
    images = np.arange(30_000, dtype=np.uint8).repeat(16).reshape(-1, 4, 4)
    visit(page, serve(all=SequenceDatasetIterator([images, np.arange(30_000) % 10])))

    page.evaluate("document.getElementById('viewport').scrollTop = 1e9")

    page.wait_for_selector("#item-29999 img")
    assert page.locator(".card").count() < 150
    assert page.locator("#item-29999 .caption span").text_content() == "29,999"
    page.focus("#viewport")
    page.keyboard.press("Home")
    page.wait_for_selector("#item-0.active")


def test_bars_search_and_chips_filter(page: Page, pictures: Served) -> None:
    visit(page, pictures)

    page.click(".value >> nth=0")
    status(page, "40 of 120")
    page.click(".value >> nth=1")
    status(page, "80 of 120")
    page.fill("#search", "tag 11")
    status(page, "6 of 120")
    page.click(".chip")
    status(page, "11 of 120")
    page.fill("#search", "nowhere")
    status(page, "0 of 120")

    assert page.text_content("#empty") == "No sample fulfils all filters."
    assert page.locator(".card").count() == 0


def test_a_sample_opens_and_keys_move(page: Page, pictures: Served) -> None:
    visit(page, pictures)
    page.focus("#viewport")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")

    page.wait_for_selector("#sample[open]")
    assert (page.text_content("#heading") or "").startswith("train · sample 1")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "() => document.getElementById('heading').textContent.startsWith('train · sample 2')"
    )
    assert '"><img src=x onerror=alert(2)>' in (page.text_content("#fields") or "")
    page.keyboard.press("Escape")

    assert not page.is_visible("#sample")
    assert page.evaluate("document.activeElement.id") == "viewport"
