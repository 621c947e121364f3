"""Texts and cards of pipelines, plans and feeds, for a terminal and for a notebook.

After a deliberate change, write the snapshots with `python -m tests.pipeline.test_card`, and look at the differences.
"""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.core.decision import Decision
from forebay.pipeline.card import COLUMNS, render_card

SNAPSHOTS = Path(__file__).parent / "snapshots"
HOSTILE = '<script>alert("x")</script>\x1b]0;title\x07\u202e</td></div>\n&amp;'


def double(row):
    return {"image": row["image"] * 2, "label": row["label"]}


def ordinary():
    data = {"image": np.zeros((2000, 28, 28), np.uint8), "label": np.arange(2000)}
    return fb.from_arrays(data).shuffle(seed=0).map(double).batch(256, drop_remainder=True).shard(0, 2)


def stream():
    return fb.from_generator(lambda: iter(np.arange(6))).batch(2).map(fb.cast("float32"))


def hostile():
    return fb.from_arrays({HOSTILE: np.arange(8), "x" * 300: np.arange(8)}).batch(4)


def plan_of(pipeline):
    """Return a plan that does not depend on the number of cores."""
    with pipeline.feed("numpy") as feed:
        decisions = tuple(each for each in feed.plan.decisions if each.name in ("order", "group"))
        return replace(feed.plan, threads=2, slots=5, slot_nbytes=1 << 20, scratch_nbytes=0, decisions=decisions)


TEXTS = {
    "ordinary.txt": lambda: repr(ordinary()),
    "stream.txt": lambda: repr(stream()),
    "hostile.txt": lambda: repr(hostile()),
    "plan.txt": lambda: repr(plan_of(ordinary())),
    "ordinary.html": lambda: ordinary()._repr_html_(),
    "stream.html": lambda: stream()._repr_html_(),
    "hostile.html": lambda: hostile()._repr_html_(),
    "plan.html": lambda: plan_of(ordinary())._repr_html_(),
}
CARDS = {
    "pipeline": lambda: hostile()._repr_html_(),
    "plan": lambda: hostile().feed("numpy").plan._repr_html_(),
    "feed": lambda: hostile().feed("numpy")._repr_html_(),
}


class Elements(HTMLParser):
    """The elements of a card, which must all be closed, and its text."""

    def __init__(self, html):
        super().__init__()
        self.names, self.open, self.text, self.attributes = set(), [], "", set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_equals_its_snapshot(name):
    assert TEXTS[name]() + "\n" == (SNAPSHOTS / name).read_text()


@pytest.mark.parametrize("name", [name for name in TEXTS if name.endswith(".txt")])
def test_a_repr_has_at_most_three_lines_of_80_columns(name):
    lines = TEXTS[name]().split("\n")
    assert len(lines) <= 3
    assert max(map(len, lines)) <= COLUMNS
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_escapes_the_names_of_fields(name):
    card = Elements(CARDS[name]())
    assert card.names == {"div", "table", "tbody", "tr", "td"}
    assert card.attributes == {"style"}
    assert card.open == []
    assert '<script>alert("x")</script>\\x1b]0;title\\x07\\u202e</td></div>' in card.text


@given(st.text(), st.text(), st.text())
def test_any_text_stays_text(name, choice, why):
    card = Elements(render_card(name, choice, [Decision(name, choice, why)], [why]))
    assert card.names == {"div", "table", "tbody", "tr", "td"}
    assert card.open == []


def test_the_card_of_ready_made_batches_reads_no_batch():
    reads = []
    pipeline = fb.from_batches(lambda: reads.append(1) or iter([np.arange(3)]))
    before = len(reads)
    assert "batch stream" in repr(pipeline)
    assert "batch stream" in pipeline._repr_html_()
    assert len(reads) == before


def test_a_feed_shows_its_measurements_in_the_card():
    with ordinary().feed("numpy") as feed:
        list(feed)
        assert "so far: 3 batches" in feed._repr_html_()
    assert "so far: 3 batches" in feed._repr_html_()  # also after close()


def test_a_repl_shows_an_explanation_without_print():
    with ordinary().feed("numpy") as feed:
        explanation = feed.explain()
        assert repr(explanation) == str(explanation)
        assert isinstance(explanation, str)
        assert explanation.splitlines()[0].startswith("feed to numpy on cpu")


def test_an_explanation_escapes_control_characters():
    with hostile().feed("numpy") as feed:
        assert "\x1b" not in feed.explain()


if __name__ == "__main__":
    for name, make in TEXTS.items():
        (SNAPSHOTS / name).write_text(make() + "\n")
