"""The HTML page in headless Chromium; skipped if Chromium is not installed."""

import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.doctor.report import report_samples as samples

from forebay.doctor.report.html import render_card, save_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

TRACKS, CROSSINGS = "#tracks", ".transfers.sortable"
expect.set_options(timeout=60_000)  # milliseconds; a busy machine draws pages slowly


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Return a function that opens a sample. Page errors and network requests fail the test."""
    problems, pages = [], []

    def open_sample(diagnosis, **options):
        save_page(diagnosis, tmp_path / "report.html")
        page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}} | options)
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url))
        page.goto((tmp_path / "report.html").as_uri())
        pages.append(page)
        return page

    yield open_sample
    for page in pages:
        page.close()
    assert problems == []


def visible_range(page):
    """Return the first and the last tick of 100 ns that the timeline shows after drawing."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("() => ['from', 'to'].map((end) => Number(document.getElementById('tracks').dataset[end]))")


def heading(page, name):
    """Return the button in a heading of the table; its arrow is part of its accessible name."""
    return page.locator(".transfers th button").filter(has_text=re.compile(f"^{name}$"))


def visible_length(page):
    start, end = visible_range(page)
    return end - start


def colors(page):
    return page.evaluate(
        "() => [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("ordinary", "crowded", "healthy", "no_loop", "no_framework", "interrupted", "streaming", "wordy"),
        *("few_crossings", "crossings_beside_a_loop"),
    ],
)
def test_every_page_opens_without_errors_and_fits_narrow_and_wide_windows(opened, name):
    page = opened(getattr(samples, name)(), viewport={"width": 360, "height": 800})
    for width in (360, 1200):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["ordinary", "crowded", "wordy"])
def test_every_number_of_a_transfer_is_visible_on_a_narrow_page(opened, name):
    page = opened(getattr(samples, name)(), viewport={"width": 360, "height": 800})
    sides = page.locator(".transfers td").evaluate_all(
        "(cells) => cells.map((cell) => cell.getBoundingClientRect()).map((box) => [box.left, box.right])"
    )
    assert sides
    assert all(left >= 0 and right <= 360 for left, right in sides)


def test_text_of_the_script_is_never_executed(opened):
    page = opened(samples.hostile())
    assert page.locator("img").count() == 0
    assert page.title().endswith(": forebay doctor")
    expect(page.locator("h1")).to_contain_text("</script><img")


def test_the_color_scheme_follows_the_system_until_the_user_chooses(opened):
    light = colors(opened(samples.ordinary(), color_scheme="light"))
    page = opened(samples.ordinary(), color_scheme="dark")
    dark = colors(page)
    assert light != dark
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Theme: light")
    assert colors(page) == light
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Theme: dark")
    assert colors(page) == dark
    page.click("#theme")
    expect(page.locator("#theme")).to_have_text("Theme: auto")


def test_a_heading_sorts_the_table_in_both_directions(opened):
    page = opened(samples.ordinary())
    calls = page.locator(CROSSINGS + " .call")
    expect(calls).to_contain_text(["torch.tensor", "DataLoader", "Tensor.item"])
    heading(page, "Bytes").click()
    expect(calls).to_contain_text(["torch.tensor", "Tensor.item", "DataLoader"])
    heading(page, "Bytes").click()
    expect(calls).to_contain_text(["DataLoader", "Tensor.item", "torch.tensor"])
    expect(page.locator("th[aria-sort]")).to_have_text("Bytes")
    heading(page, "Line").click()
    expect(page.locator(CROSSINGS + " .line span")).to_have_text(["train.py:31", "train.py:34", "train.py:41"])


def test_a_heading_can_be_used_with_the_keyboard(opened):
    page = opened(samples.ordinary())
    heading(page, "Call").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort='ascending']")).to_have_text("Call")


def test_the_copy_button_copies_a_cure(opened):
    page = opened(samples.ordinary())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("() => { window.setTimeout = () => 0; }")  # otherwise a timer resets the label
    page.locator(".copy").nth(1).click()
    expect(page.locator(".copy").nth(1)).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == 'images = forebay.upload_once(images, to="torch")'


def test_the_timeline_zooms_moves_and_shows_all(opened):
    page = opened(samples.ordinary())
    first_length = visible_length(page)
    page.click("[data-show=all]")
    assert visible_range(page) == [0, 51 * 110_000]
    page.hover(TRACKS)
    page.mouse.wheel(0, -200)
    assert 0 < visible_length(page) < 51 * 110_000
    page.click("[data-show=step]")
    assert 110_000 <= visible_length(page) < first_length
    before = visible_range(page)
    page.locator(TRACKS).press("ArrowRight")
    assert visible_range(page) > before
    page.locator(TRACKS).press("+")
    assert visible_length(page) < before[1] - before[0]
    page.locator(TRACKS).press("0")
    assert visible_range(page) == [0, 51 * 110_000]


def test_a_wheel_over_the_whole_timeline_scrolls_the_page(opened):
    page = opened(samples.ordinary(), viewport={"width": 1200, "height": 500})
    page.click("[data-show=all]")
    page.hover(TRACKS)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 120)
    page.wait_for_function("(before) => scrollY > before", arg=before)
    assert visible_range(page) == [0, 51 * 110_000]


def test_dragging_moves_the_timeline(opened):
    page = opened(samples.ordinary())
    page.click("[data-show=step]")
    before = visible_range(page)
    page.locator(TRACKS).scroll_into_view_if_needed()
    box = page.locator(TRACKS).bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 60, steps=5)
    page.mouse.up()
    after = visible_range(page)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])


def test_hovering_describes_an_event(opened):
    page = opened(samples.ordinary())
    page.click("[data-show=step]")
    page.hover(TRACKS, position={"x": 400, "y": 60})
    expect(page.locator("#hover")).to_be_visible()
    expect(page.locator("#hover")).to_contain_text("torch.tensor")
    expect(page.locator("#hover")).to_contain_text("upload, 6 ms, 11.4 MiB")
    expect(page.locator("#hover")).to_contain_text("train.py:34")
    page.mouse.move(5, 5)
    expect(page.locator("#hover")).to_be_hidden()


def test_nearly_twenty_thousand_events_are_drawn_and_found(opened):
    page = opened(samples.large(3300))
    page.click("[data-show=all]")
    expect(page.locator("#timeline-summary")).to_have_text("All 19,800 events of the run.")
    page.hover(TRACKS, position={"x": 700, "y": 60})
    expect(page.locator("#hover")).to_be_visible()


def test_a_page_can_be_read_without_its_script(opened):
    page = opened(samples.ordinary(), java_script_enabled=False)
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator(".finding")).to_have_count(3)
    expect(page.locator(CROSSINGS + " tbody tr")).to_have_count(3)


def test_a_browser_shows_a_notebook_card(browser):
    page = browser.new_page()
    page.set_content(render_card(samples.ordinary()))
    expect(page.locator(".headline")).to_be_visible()
    page.locator("summary").nth(1).click()
    expect(page.locator("details").nth(1)).to_contain_text("use workers")
    page.close()
