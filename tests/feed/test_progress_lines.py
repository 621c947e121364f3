"""A waiting consumer sees the progress line of the thread that works for it."""

import numpy as np
import pytest
from tests.support.terminals import show_progress_at_once

import forebay as fb
from forebay.core.progress_line import ProgressLine
from forebay.feed import row_index, runner


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(runner, "SHOW_AFTER_SECONDS", 0.0)
    return show_progress_at_once(monkeypatch)


def test_a_waiting_consumer_sees_the_progress_of_a_worker_thread(terminal):
    def rows():
        line = ProgressLine("opening the archive", 2)
        line.done = 1
        with line:
            terminal.drawn.wait(10)
        yield 7

    with fb.from_generator(rows).batch(1).feed("numpy") as feed:
        assert next(feed).tolist() == [7]
    assert "forebay: opening the archive (50%, 0 s)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_wait_without_a_progress_line_draws_nothing(terminal):
    with fb.from_generator(lambda: iter(range(8))).batch(2).feed("numpy") as feed:
        assert len(list(feed)) == 4
    assert terminal.getvalue() == ""


def test_the_progress_line_of_a_draw_without_replacement_has_the_number_of_rows(monkeypatch):
    texts = []
    monkeypatch.setattr(row_index, "ProgressLine", lambda text: texts.append(text) or ProgressLine(text))
    pipeline = fb.from_arrays(np.arange(40)).sample(weights=np.ones(40), replacement=False)
    with pipeline.batch(4).feed("numpy") as feed:
        assert len(list(feed)) == 10
    assert texts[0] == "sample(replacement=False) draws 40 rows"


def test_the_progress_line_of_sample_has_the_number_of_weights(monkeypatch):
    texts = []
    monkeypatch.setattr(
        "forebay.pipeline.choice_methods.ProgressLine", lambda text: texts.append(text) or ProgressLine(text)
    )
    fb.from_arrays(np.arange(40)).sample(weights=np.ones(40), rows=2_000)
    assert texts == ["sample() prepares draws from 40 weights"]
