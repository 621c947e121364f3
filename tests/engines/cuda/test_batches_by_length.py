"""On the CUDA engine, ragged batches and batches of similar length equal those of the host."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import KINDS, feed_of
from tests.support.fake_cuda import PACES, fake_cuda

import forebay as fb


def make_rows(lengths):
    """Return a pipeline of texts and their numbers."""
    texts = [np.full(length, row + 1, np.int32) for row, length in enumerate(lengths)]
    return fb.from_arrays({"text": fb.Ragged.of_rows(texts), "row": np.arange(len(lengths))})


def read_text(framework, text):
    if isinstance(text, fb.Ragged):
        return fb.Ragged(framework.read(text.values), framework.read(text.offsets)).tolist()
    return framework.read(text).tolist()


@settings(derandomize=True)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=50),
    options=st.sampled_from([{"rows": 4, "ragged": True}, {"tokens": 60, "pad": 0}, {"tokens": 60, "ragged": True}]),
    kind=st.sampled_from(KINDS),
    pace=st.sampled_from(PACES),
)
def test_every_batch_equals_the_host_batch(lengths, options, kind, pace):
    pipeline = make_rows(lengths).shuffle(seed=2).batch(**options)
    for epoch in range(2):
        with pipeline.feed("numpy", device="cpu") as feed:
            feed.set_epoch(epoch)
            expected = [(batch["row"].tolist(), batch["text"].tolist()) for batch in feed]
        with fake_cuda(kind=kind, pace=pace) as framework, feed_of(pipeline, framework) as feed:
            feed.set_epoch(epoch)
            found = [(framework.read(batch["row"]).tolist(), read_text(framework, batch["text"])) for batch in feed]
        assert found == expected


def test_values_are_scaled_on_the_host():
    pipeline = make_rows([3, 1, 2]).batch(3, ragged=True).map(fb.scale({"text": 0.5}))
    with fake_cuda() as framework, feed_of(pipeline, framework) as feed:
        assert "batches may differ in size" in feed.explain()
        assert read_text(framework, next(feed)["text"]) == [[0.5] * 3, [1.0], [1.5] * 2]


def test_a_device_map_receives_ragged_rows():
    pipeline = make_rows([3, 1, 2]).batch(3, ragged=True).map(lambda batch: batch["text"], where="device")
    with fake_cuda() as framework, feed_of(pipeline, framework) as feed:
        assert read_text(framework, next(feed)) == [[1] * 3, [2], [3] * 2]


def test_ragged_rows_cannot_be_resident():
    with fake_cuda() as framework, pytest.raises(fb.ForebayError, match="batches may differ in size"):
        feed_of(make_rows([3, 1]).batch(2, ragged=True), framework, resident="always")
