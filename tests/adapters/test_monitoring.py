"""The statistics of feeds reach TensorBoard, Weights & Biases and Prometheus."""

import gc
import sys

import numpy as np
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.received import batches_of

import forebay as fb
from forebay.adapters.monitoring import FeedCollector, scalars, to_tensorboard, to_wandb
from forebay.errors import FrameworkError, PipelineError
from forebay.testing import SimulatedEngine

NAMES = {"rows", "errors", "rows_per_second", "wait_share"} | {
    f"wait_{part}_seconds" for part in ("p50", "p95", "p99", "max")
}


class Run:
    """Replaces a run of Weights & Biases, and records what it logs."""

    def __init__(self):
        self.logged = []

    def log(self, data, step=None, commit=None):
        self.logged.append((data, commit))


class PlainLogger:
    """A logger whose method `log` has no argument `commit`."""

    def __init__(self):
        self.logged = []

    def log(self, data):
        self.logged.append(data)


def feed_of(rows=8, shard=(0, 1)):
    return fb.from_arrays(np.arange(rows)).shard(*shard).batch(2).feed("numpy")


def scrape(registry):
    """Return the values of a registry by name and labels, as Prometheus reads them."""
    families = text_string_to_metric_families(prometheus_client.generate_latest(registry).decode())
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


def test_scalars_have_the_rank_in_their_names_if_there_are_several_shards():
    found = []
    for shard in ((0, 1), (1, 2)):
        with feed_of(shard=shard) as feed:
            feed.on_stats(lambda stats: found.append(scalars(stats, "train")), every=1)
            batches_of(feed)
    assert set(found[0]) == {f"train/{name}" for name in NAMES}
    assert set(found[-1]) == {f"train/rank1/{name}" for name in NAMES}


@pytest.mark.slow
def test_a_summary_writer_gets_scalars_by_batch(tmp_path):
    from tensorboardX import SummaryWriter  # imports PyTorch
    from tensorboardX.proto.event_pb2 import Event

    with SummaryWriter(str(tmp_path)) as writer, feed_of() as feed:
        feed.on_stats(to_tensorboard(writer), every=1)
        batches_of(feed)
    (path,) = tmp_path.iterdir()
    events = [Event.FromString(record) for record in records_of(path)]
    values = {value.tag: (event.step, value.simple_value) for event in events for value in event.summary.value}
    assert set(values) == {f"feed/{name}" for name in NAMES}
    assert values["feed/rows"] == (4, 8.0)


def records_of(path):
    """Return the records of an event file.

    12 bytes (length and checksum) precede each record, and 4 follow it.
    """
    content, records = path.read_bytes(), []
    while content:
        stop = 12 + int.from_bytes(content[:8], "little")
        records.append(content[12:stop])
        content = content[stop + 4 :]
    return records


def test_wandb_logs_the_statistics_with_the_next_step():
    run, plain = Run(), PlainLogger()
    with feed_of() as feed:
        feed.on_stats(to_wandb(run), every=1)
        feed.on_stats(to_wandb(plain, prefix="train"), every=1)
        batches_of(feed)
    (data, commit) = run.logged[-1]
    assert commit is False
    assert data["feed/rows"] == 8
    assert plain.logged[-1]["train/rows"] == 8


@pytest.mark.parametrize("function", [to_wandb, to_tensorboard])
def test_an_object_that_is_no_logger_is_refused(function):
    with pytest.raises(PipelineError, match="pass "):
        function(object())


def test_prometheus_reads_the_statistics_when_it_scrapes():
    registry = prometheus_client.CollectorRegistry()
    with feed_of() as train, feed_of(4, (1, 2)) as valid:
        registry.register(FeedCollector(train=train, valid=valid))
        labels = ("feed", "train"), ("rank", "0")
        assert scrape(registry)["forebay_rows_total", *labels] == 0
        batches_of(train)
        batches_of(valid)
        found = scrape(registry)
    assert found["forebay_rows_total", *labels] == 8
    assert found["forebay_batches_total", *labels] == 4
    assert found["forebay_errors_total", *labels] == 0
    assert found["forebay_batch_wait_seconds_count", *labels] == 4
    assert found["forebay_batch_wait_seconds_bucket", ("feed", "train"), ("le", "+Inf"), ("rank", "0")] == 4
    assert found["forebay_rows_total", ("feed", "valid"), ("rank", "1")] == 2
    assert found["forebay_batch_wait_seconds_sum", *labels] > 0


def test_prometheus_reads_a_feed_for_several_devices():
    registry = prometheus_client.CollectorRegistry()
    pipeline = fb.from_arrays(np.arange(8)).batch(2)
    with pipeline.feed("numpy", device=(SimulatedEngine(), SimulatedEngine())) as train:
        registry.register(FeedCollector(train=train))
        list(train)
        found = scrape(registry)
    labels = ("feed", "train"), ("rank", "0")
    assert (found["forebay_rows_total", *labels], found["forebay_batches_total", *labels]) == (8, 4)
    assert found["forebay_bytes_total", *labels] == 64


def test_the_collector_does_not_keep_a_feed_alive():
    registry = prometheus_client.CollectorRegistry()
    feed = feed_of()
    registry.register(FeedCollector(train=feed))
    feed.close()
    del feed
    gc.collect()
    assert scrape(registry) == {}


def test_a_collector_without_feeds_is_refused():
    with pytest.raises(PipelineError, match="has no feed"):
        FeedCollector()


def test_the_error_for_a_missing_client_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with feed_of() as feed, pytest.raises(FrameworkError, match=r"forebay\[prometheus\]"):
        FeedCollector(train=feed)
