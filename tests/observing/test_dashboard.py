"""The dashboard in a real browser, with feeds that really run."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from conftest import Start
from support import roles
from support.dashboards import LOADER, Dashboard, train
from support.waiting import TIMEOUT_SECS, eventually

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        why = "the dashboard is tested in chromium, and there is none: apt install chromium"
        pytest.fail(why) if os.environ.get("FEEDLINE_NEED_BROWSER") == "1" else pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def dashboard(browser: Browser, folder: Path) -> Iterator[Dashboard]:
    one = Dashboard()
    yield one
    one.close()


@pytest.fixture
def open_page(browser: Browser, dashboard: Dashboard) -> Iterator[OpenPage]:
    """Open the page. It may neither complain nor ask anybody else for anything.

    If `is_left`, its dashboard will end before it.
    """
    pages: list[Page] = []
    complaints: list[str] = []
    elsewhere: list[str] = []

    def open_page(
        url: str = dashboard.url, *, width: int = 1280, dark: bool = False, is_left: bool = False
    ) -> Page:
        def complain(text: str) -> None:
            # Chromium tells of every connection that it lost.
            if not (is_left and "net::ERR_" in text):
                complaints.append(text)

        scheme = "dark" if dark else "light"
        size = {"width": width, "height": 900}
        page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        page.set_default_timeout(TIMEOUT_SECS * 1000)
        page.on("console", lambda message: complain(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complain(str(error)))
        page.on("request", lambda request: elsewhere.append(request.url))
        page.goto(url)
        pages.append(page)
        return page

    expect.set_options(timeout=TIMEOUT_SECS * 1000)
    yield open_page
    for page in pages:
        page.context.close()
    own = re.compile(r"http://127\.0\.0\.1:\d+/")
    assert [url for url in elsewhere if not own.match(url)] == []
    assert complaints == []


def card(page: Page, name: str = "train") -> Locator:
    return page.locator(f"#feed-{name}")


def job(page: Page, pid: int) -> Locator:
    return page.locator(f'tbody tr[data-pid="{pid}"]')


def happened(page: Page | Locator, kind: str) -> Locator:
    return page.locator(f".events li[data-kind={kind}]")


def test_jobs_come_and_go(open_page: OpenPage, start: Start, dashboard: Dashboard) -> None:
    page = open_page()
    expect(page.get_by_role("heading", name="No feeds are running")).to_be_visible()
    expect(page.locator("#empty")).to_contain_text("feedline serve")
    start(roles.serve, **LOADER).expect("ready")
    expect(card(page)).to_have_attribute("data-phase", "live")
    expect(page.locator("#empty")).to_be_hidden()
    expect(card(page).get_by_text("nobody reads this feed").first).to_be_visible()

    marker = '<script>window.pwned = 1</script><img src="x" onerror="window.pwned = 1">'
    first = start(train, batch_size=32, secs=0.002, note=marker)
    second = start(train, batch_size=16)
    expect(job(page, first.pid)).to_be_visible()
    expect(job(page, second.pid)).to_contain_text("zero-copy")
    expect(happened(page, "joined")).to_have_count(2)
    expect(page.locator(".sign[data-kind=joined]")).to_have_count(2)
    expect(job(page, first.pid).locator(".command")).to_contain_text("<script>window.pwned")
    assert page.evaluate("window.pwned") is None
    expect(page.locator("#summary")).to_have_text("1 feed · 2 jobs")
    assert 'feedline_up{feed="train"} 1' in dashboard.ask("/metrics")[2]

    # Words for the verdict, and numbers that move.
    expect(page.locator(".verdict strong")).not_to_be_empty()
    expect(job(page, second.pid).locator("td").nth(6)).to_have_text(re.compile(r"^[1-9]"))
    before = page.locator(".left").inner_text()
    expect(page.locator(".left")).not_to_have_text(before)
    assert len(page.locator(".line.source").get_attribute("d") or "") > 20
    assert "samples/s" in (
        page.locator(".timeline svg[role=img]").get_attribute("aria-label") or ""
    )

    second.kill()
    expect(happened(page, "died")).to_contain_text(f"pid {second.pid}")
    expect(page.locator(".sign[data-kind=died]")).to_be_visible()
    expect(job(page, second.pid)).to_have_count(0)
    expect(job(page, first.pid)).to_be_visible()

    # What was before a reload is there after it, and can be pointed at.
    page.reload()
    expect(page.locator(".sign[data-kind=died]")).to_be_visible()
    page.locator(".timeline").press("ArrowLeft")
    expect(page.locator(".tip")).to_contain_text("samples/s")


def test_a_feed_ends_and_is_back(open_page: OpenPage, start: Start, dashboard: Dashboard) -> None:
    page = open_page()
    server = start(roles.serve, **LOADER)
    server.expect("ready")
    expect(card(page)).to_have_attribute("data-phase", "live")
    card(page).evaluate("card => card.dataset.old = 'yes'")
    server.tell("stop")
    expect(card(page)).to_have_attribute("data-phase", "ended")
    expect(card(page).locator(".verdict")).to_contain_text("Stopped")
    assert server.exit_code() == 0

    server = start(roles.serve, **LOADER)
    server.expect("ready")
    expect(card(page)).to_have_attribute("data-phase", "live")
    expect(happened(page, "started")).to_have_count(2)
    expect(card(page)).to_contain_text(f"pid {server.pid}")
    server.kill()
    expect(card(page).locator(".verdict")).to_contain_text("Vanished")
    expect(card(page)).to_have_count(1)
    expect(card(page)).to_have_attribute("data-old", "yes")

    # It comes to the broken sample when somebody reads.
    broken = {"loader": "Broken", "loader_args": [4000, 16], "loader_options": {"at": 2000}}
    start(roles.serve, **broken, ring=256).expect("ready")
    expect(card(page)).to_have_attribute("data-phase", "live")
    start(train)
    expect(card(page).locator(".verdict")).to_contain_text("Failed")
    expect(card(page).locator(".verdict")).to_contain_text("sample 2000 is truncated")
    assert dashboard.feeds()["train"]["how"] == "failed"


@pytest.mark.parametrize(("is_whole", "kept"), [(False, "400 samples"), (True, "25 batches")])
def test_an_epoch_that_is_kept_is_no_empty_ring(
    open_page: OpenPage, start: Start, is_whole: bool, kept: str
) -> None:
    page = open_page()
    server = start(roles.serve, loader_args=[400, 16], whole_batches=is_whole, replay=True)
    server.expect("ready")
    start(train, batch_size=None if is_whole else 32).expect("attached")
    expect(card(page).locator(".verdict")).to_contain_text("1 job reads, and nothing to load")
    facts = card(page).locator(".facts")
    expect(facts).to_contain_text(f"Kept100 %{kept}")
    assert kept.split()[1] in card(page).locator(".timeline").inner_text()
    expect(facts).not_to_contain_text("Ring")


def test_two_feeds_on_a_phone_in_the_dark(open_page: OpenPage, start: Start) -> None:
    servers = [start(roles.serve, name=name, **LOADER) for name in ["images", "words"]]
    for server in servers:
        server.expect("ready")
    jobs = [start(train, name="images", batch_size=8 * size) for size in range(1, 4)]
    page = open_page()
    phone = open_page(width=390, dark=True)
    for one in [page, phone]:
        expect(one.locator(".card")).to_have_count(2)
        for child in jobs:
            expect(job(one, child.pid)).to_be_visible()
        for tall in [300, 3000]:
            one.set_viewport_size({"width": one.evaluate("innerWidth"), "height": tall})
            assert one.evaluate("document.documentElement.scrollWidth <= innerWidth")
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) != phone.evaluate(colour)
    phone.get_by_role("button", name="light and dark").click()
    assert page.evaluate(colour) == phone.evaluate(colour)
    phone.get_by_role("button", name="1 min", exact=True).click()
    expect(phone.locator(".when").first).to_have_text("−1 min")
    expect(phone.get_by_role("table").first).to_be_visible()

    # A server that is stopped is shown as silent, and the other one as ever.
    servers[0].stop()
    expect(card(page, "images")).to_have_attribute("data-phase", "silent")
    expect(card(page, "words")).to_have_attribute("data-phase", "live")
    servers[0].resume()
    expect(card(page, "images")).to_have_attribute("data-phase", "live")
    expect(happened(card(page, "images"), "answers").first).to_be_visible()


def test_the_dashboard_itself_starts_again(
    open_page: OpenPage, start: Start, dashboard: Dashboard
) -> None:
    page = open_page(is_left=True)
    first = start(roles.serve, **LOADER)
    first.expect("ready")
    expect(happened(page, "started")).to_contain_text(f"pid {first.pid}")
    first.tell("stop")
    expect(happened(page, "stopped")).to_have_count(1)
    second = start(roles.serve, **LOADER)
    second.expect("ready")
    expect(happened(page, "started")).to_have_count(2)
    dashboard.end(signal.SIGINT)
    expect(page.locator("#status")).to_contain_text("gone")
    again = Dashboard("--port", str(dashboard.port))
    try:
        assert again.port == dashboard.port
        expect(page.locator("#status")).to_have_text("live")
        eventually(lambda: "train" in again.feeds())
        expect(card(page)).to_have_attribute("data-phase", "live")
        # It knows of nothing before its own time.
        expect(happened(page, "started")).to_have_count(1)
        expect(happened(page, "started")).to_contain_text(f"pid {second.pid}")
        expect(happened(page, "stopped")).to_have_count(0)
    finally:
        again.close()


def test_a_token_is_taken_from_the_url(open_page: OpenPage, start: Start) -> None:
    start(roles.serve, **LOADER).expect("ready")
    guarded = Dashboard("--token", "a-token-of-ours")
    try:
        page = open_page(guarded.url, is_left=True)
        expect(card(page)).to_have_attribute("data-phase", "live")
        assert page.url == f"http://127.0.0.1:{guarded.port}/"
        page.reload()
        expect(card(page)).to_have_attribute("data-phase", "live")
    finally:
        guarded.close()
