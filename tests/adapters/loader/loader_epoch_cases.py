"""Epochs of a loader, batches that trainers read by number, and reports."""

import itertools
import json

import numpy as np
import prometheus_client
import pytest
from tests.adapters.loader.loader_cases import make_pipeline, rebuild
from tests.support.received import batches_of

import forebay as fb
from forebay.adapters.loader import loader_feed
from forebay.adapters.monitoring import FeedCollector
from forebay.errors import FeedError, StateError


def test_unused_iterators_start_no_epoch():
    loader, feed = make_pipeline().feed("loader"), make_pipeline().feed("torch")
    for _ in range(3):
        iter(loader), iter(loader)
        assert batches_of(loader) == batches_of(feed)


def test_an_iterator_starts_the_epoch_that_was_set_after_it_was_made():
    loader, feed = make_pipeline().feed("loader"), make_pipeline().feed("torch")
    batches = iter(loader)
    loader.sampler.set_epoch(3)
    feed.set_epoch(3)
    assert batches_of(batches) == batches_of(feed)
    assert loader.sampler.epoch == 4


def test_setting_the_epoch_of_a_loaded_state_keeps_the_position():
    loader, other = make_pipeline().feed("loader"), make_pipeline().feed("loader")
    expected = batches_of(loader)
    batches = iter(other)
    other.set_epoch(0)
    next(batches), next(batches)
    loader.load_state_dict(other.state_dict())
    loader.sampler.set_epoch(0)
    assert batches_of(loader) == expected[2:]


def test_after_the_epoch_is_set_again_an_iterator_starts_at_its_first_batch():
    loader = make_pipeline().feed("loader")
    first = batches_of(itertools.islice(loader, 2))
    loader.set_epoch(0)
    assert batches_of(loader)[:2] == first


def test_the_state_after_the_last_batch_is_the_start_of_the_next_epoch():
    loader = make_pipeline().feed("loader")
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    with pytest.raises(StopIteration):
        next(batches)


def test_a_state_at_the_end_of_an_epoch_resumes_with_the_next_one():
    feed, loader = make_pipeline().feed("torch"), make_pipeline().feed("loader")
    batches = iter(feed)
    for _ in range(len(feed)):
        next(batches)
    loader.load_state_dict(feed.state_dict())
    feed.set_epoch(1)
    assert batches_of(loader) == batches_of(feed)


def test_setting_the_current_epoch_keeps_its_iterator():
    """Lightning takes the first batch of an input without a length before it sets the epoch."""
    loader, feed = make_pipeline().feed("loader"), make_pipeline().feed("torch")
    for epoch in range(3):
        batches = iter(loader)
        first = next(batches)
        loader.set_epoch(epoch)
        assert [first.tolist(), *batches_of(batches)] == batches_of(feed)


def test_another_epoch_begins_with_the_next_iterator():
    loader, feed = make_pipeline().feed("loader"), make_pipeline().feed("torch")
    batches = iter(loader)
    next(batches)
    loader.set_epoch(5)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (5, 0)
    next(batches)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, 2)
    feed.set_epoch(5)
    assert batches_of(loader) == batches_of(feed)
    with pytest.raises(FeedError, match="newer iterator"):
        next(batches)


def test_a_loader_that_is_repeated_inside_an_epoch_resumes():
    """Lightning repeats the shorter of two loaders, and sets its own epoch after a resume."""
    loader, resumed = make_pipeline().feed("loader"), make_pipeline().feed("loader")
    loader.set_epoch(0)
    list(loader)
    second = iter(loader)
    list(itertools.islice(second, 3))
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    resumed.set_epoch(0)
    assert batches_of(resumed) == batches_of(second)


def test_an_iterator_of_a_rebuilt_stream_stays_at_its_end():
    loader = fb.from_generator(lambda: iter(np.arange(10)), spec=np.int64(0)).batch(4).feed("loader")
    batches = iter(rebuild(loader))
    assert batches_of(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches_of(batches) == []
    assert batches_of(rebuild(loader)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_skipping_more_than_a_stream_has_is_refused():
    loader = fb.from_generator(lambda: iter(np.arange(10)), spec=np.int64(0)).batch(4).feed("loader")
    with pytest.raises(StateError, match=r"skips 5 batches of epoch 0.*\.repeat\(\)"):
        batches_of(rebuild(loader, skip=5))


def test_a_closed_loader_still_has_statistics_and_a_plan():
    used, unused = make_pipeline().feed("loader"), make_pipeline().feed("loader")
    list(itertools.islice(used, 2))
    used.close()
    unused.close()
    assert (used.stats()["batches"], unused.stats()["batches"]) == (2, 0)
    assert "Feed(torch on cpu" in repr(used)
    assert "100 rows" in repr(unused)
    assert "batches" in used.explain()
    assert "closed before it was used" in unused.explain()
    assert used._repr_html_()
    assert unused._repr_html_()


def test_reports_continue_after_a_change_of_rank(monkeypatch):
    found = []
    loader = fb.from_arrays(np.arange(4000)).batch(1).feed("loader")
    stop = loader.on_stats(found.append, every=1)
    list(itertools.islice(loader, 2000))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    list(loader)
    assert found[-1]["batches"] > 2000
    assert (found[0]["rank"], found[-1]["rank"]) == (0, 1)
    assert loader.received.batches == loader.stats()["batches"] == 4000
    stop()


def test_prometheus_reads_a_loader():
    loader, registry = make_pipeline().feed("loader"), prometheus_client.CollectorRegistry()
    registry.register(FeedCollector(train=loader))
    assert 'forebay_rows_total{feed="train",rank="0"} 0.0' in prometheus_client.generate_latest(registry).decode()
    assert not loader._loader_feed.has_position
    list(loader)
    assert 'forebay_rows_total{feed="train",rank="0"} 100.0' in prometheus_client.generate_latest(registry).decode()


def test_reading_the_length_does_not_choose_the_device(monkeypatch):
    """A trainer chooses the GPU after the script has read length, rank and epoch."""
    monkeypatch.setattr(loader_feed, "Feed", None)
    loader = make_pipeline().feed("loader")
    loader.set_epoch(2)
    assert (len(loader), len(loader.batch_sampler), len(list(loader.batch_sampler)), loader.sampler.epoch) == (
        7,
        7,
        7,
        2,
    )
    assert (repr(loader) != "", loader.stats()["batches"]) == (True, 0)
