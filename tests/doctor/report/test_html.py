"""The HTML page as a file: small, self-contained, and safe for any text of the script."""

import re
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser

import pytest
from tests.doctor.captures import JAX, loop, run, run_of, sampled
from tests.doctor.report import report_samples as samples
from tests.doctor.rules.rule_captures import WARNINGS

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.step_history import StepBlock, StepHistory
from forebay.doctor.report.html import render_card, render_page, save_page

SAMPLES = ["ordinary", "crowded", "healthy", "no_loop", "no_framework", "hostile", "interrupted", "streaming"]
SAMPLES += ["few_crossings", pytest.param("many_crossings", marks=pytest.mark.long), "crossings_beside_a_loop"]
LARGEST = 2_000_000  # bytes per page
VOID = {"meta", "link", "br", "img"}


class Elements(HTMLParser):
    """Parses a page into elements and attributes, and checks that the elements close in order."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@cache
def page_of(name):
    """Return the page of a sample and its elements. Cached, because a page with many crossings takes seconds."""
    text = render_page(getattr(samples, name)())
    return text, Elements(text)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_element_is_closed(name):
    assert page_of(name)[1].open == []
    assert Elements(render_card(getattr(samples, name)())).open == []


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_makes_no_network_request(name):
    text, elements = page_of(name)
    assert re.findall(r"(?:https?:)?//[\w.-]+\.\w{2,}", text) == []
    assert re.findall(r"@import|url\(", text) == []
    links = [attributes.get("href") or attributes.get("src") for _, attributes in elements.found]
    assert {link for link in links if link and not link.startswith(("#", "data:"))} == set()


@pytest.mark.parametrize("render", [render_page, render_card])
def test_text_of_the_script_never_becomes_an_element(render):
    text = render(samples.hostile())
    elements = Elements(text).found
    assert samples.HOSTILE not in text
    assert "{{ 7 * 7 }}" in text
    assert "img" not in {tag for tag, _ in elements}
    assert not any(name.startswith("on") for _, attributes in elements for name in attributes)


def test_only_the_script_of_the_page_may_run():
    text = render_page(samples.ordinary())
    policy = next(a["content"] for tag, a in Elements(text).found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "'sha256-" in policy
    assert text.count("<script") == 2  # one for the data, one for the code


@pytest.mark.slow
@pytest.mark.parametrize("make", [partial(samples.large, 30_000), samples.wordy], ids=["many events", "long lines"])
def test_a_page_stays_small(tmp_path, make):
    save_page(make(), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < LARGEST


def test_a_card_is_short_and_contains_no_script():
    text = render_card(samples.crowded())
    assert len(text) < 20_000
    assert "<script" not in text
    assert "7 more findings" in text


def test_a_card_lists_the_first_crossings_of_a_script_without_a_loop():
    text = render_card(samples.many_crossings())
    assert text.count("train.py:10") == 20
    assert "11,980 more crossings" in text
    assert "bool(tensor) (implied)" in render_card(samples.few_crossings())
    assert "crossings" not in render_card(samples.crossings_beside_a_loop()).split("</style>")[1]


def test_a_page_shows_diagnosis_line_and_cure():
    text = render_page(samples.ordinary())
    assert "<h1>torch.tensor uploads the same 11.4 MiB again and again.</h1>" in text
    assert "images = torch.tensor(images, device=&#34;cuda&#34;)" in text
    assert "forebay.upload_once(images, to=&#34;torch&#34;)" in text
    assert "1.9 to 2.2 x as fast" in text
    assert "AMD EPYC 9554" in text


def test_missing_data_is_listed():
    assert "rule small_batch failed" in render_page(samples.crowded())
    assert 'id="not-seen"' not in render_page(samples.ordinary())


@pytest.mark.slow
def test_a_page_lists_every_crossing_up_to_the_limit():
    text, _ = page_of("many_crossings")
    assert text.count('data-name="Start"') == 10_000
    assert text.count('data-name="Crossings"') == 5
    assert len(text) < 3 * LARGEST
    assert 'id="crossings"' not in render_page(samples.ordinary())


def test_a_page_shows_time_direction_and_cause_of_a_crossing():
    text = render_page(samples.few_crossings())
    assert "3.011 s" in text
    assert "device to host, implied" in text
    assert "98.0 MiB" in text
    assert "waits for the device" in text


def test_a_page_lists_the_lines_of_a_step_and_the_rest():
    capture = sampled(loop(run(ms=4), frameworks=JAX), (14, "numpy.sort", 4), (20, "", 2))
    text = render_page(diagnose(capture))
    assert "In 6.00 ms of a step (60%), the thread of the loop was in no recorded call." in text
    lines = text[text.index('id="host-lines"') :]
    assert lines.index("train.py:14") < lines.index("train.py:20")
    assert "numpy.sort" in lines
    assert "tf.function" in lines  # the recorded call
    assert lines.index("train.py:20") < lines.index("<span>other lines</span>")
    assert 'id="host-lines"' not in render_page(samples.no_loop())


def test_a_page_shows_the_time_of_a_run_without_a_loop_by_line():
    text = render_page(diagnose(run_of((14, "torch.load", 5), (15, "", 2))))
    assert "Time of the run, by line" in text
    assert "Samples of the busiest thread name a line of the script for 70% of the run." in text
    assert text.index("train.py:14") < text.index("train.py:15")


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_about_steps_without_duration_is_rendered(name):
    capture = WARNINGS[name][1]
    events = tuple(event._replace(start=0, end=0) for event in capture.events)
    diagnosis = diagnose(replace(capture, events=events))
    assert diagnosis.view.step_seconds == 0
    assert render_page(diagnosis).rstrip().endswith("</html>")
    assert render_card(diagnosis)


def lengthened_by_pauses():
    """Return a diagnosis whose main finding is about pauses. The mean step takes twice the median step time."""
    history = StepHistory(blocks=(StepBlock(100, 2.18, 0.0109, ()),))
    capture = replace(samples.ordinary().view.capture, history=history)
    return samples.diagnosis_of(capture, replace(samples.UPLOAD, rule="pauses"))


def test_the_bars_for_pauses_show_the_mean_step_as_the_sentence_does():
    page = render_page(lengthened_by_pauses())
    assert "a step takes 10.0 to 11.2 ms on average instead of 21.8 ms" in page
    assert '<span class="label">21.8 ms</span>' in page
    assert '<span class="label">10.0 to 11.2 ms <b>' in page
    assert "10.0 to 11.2 ms of 21.8 ms" in page


def test_a_card_shows_no_time_and_no_speedup_for_a_warning():
    cure = replace(samples.UPLOAD.best_cure, low=0.0, high=0.0)
    warning = replace(samples.UPLOAD, seconds=0.0, cures=(cure,))
    text = render_card(samples.diagnosis_of(samples.ordinary().view.capture, warning))
    assert "0 s per step" not in text
    assert "1.00 x as fast" not in text
