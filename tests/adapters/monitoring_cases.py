"""The writers of `tf.summary` get the statistics of feeds.

`tests/test_framework_cases.py` runs this file in the process of TensorFlow.
"""

import sys

import numpy as np
import pytest
import tensorflow as tf

import forebay as fb
from forebay.adapters.monitoring import to_tensorboard
from forebay.errors import FrameworkError


def test_a_writer_of_tensorflow_gets_scalars_by_batch(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    with fb.from_arrays(np.arange(8)).batch(2).feed("tensorflow") as feed:
        feed.on_stats(to_tensorboard(writer, prefix="train"), every=4)
        assert len(list(feed)) == 4
    writer.close()
    events = [event for path in tmp_path.iterdir() for event in tf.compat.v1.train.summary_iterator(str(path))]
    values = [(event.step, value) for event in events for value in event.summary.value]
    found = {value.tag: (step, tf.make_ndarray(value.tensor)) for step, value in values}
    assert found["train/rows"] == (4, 8.0)
    assert "train/wait_p99_seconds" in found


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(FrameworkError, match="pip install tensorboard"):
        to_tensorboard(tf.summary.create_file_writer(str(tmp_path)))
