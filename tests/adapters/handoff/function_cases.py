"""Feeds and uploads inside a tf.function, which TensorFlow traces.

`tests/test_framework_cases.py` runs this file in a process of its framework, because frameworks conflict in one
process.
"""

import numpy as np
import pytest
import tensorflow as tf

import forebay as fb
from forebay.errors import FeedError

FLOATS = np.arange(600, dtype=np.float32).reshape(60, 10)


def test_a_feed_inside_a_tf_function_is_refused():
    with fb.from_arrays(FLOATS).batch(8).feed("tensorflow") as fed:

        @tf.function(autograph=False)
        def total():
            return sum(tf.reduce_sum(batch) for batch in fed)

        with pytest.raises(FeedError, match=r"inside a tf\.function"):
            total()


def test_next_of_a_feed_inside_a_tf_function_is_refused():
    with fb.from_arrays(FLOATS).batch(8).feed("tensorflow") as fed:
        # With autograph, TensorFlow would wrap the error.
        add_up = tf.function(lambda x: x + tf.reduce_sum(next(fed)), autograph=False)
        with pytest.raises(FeedError, match=r"inside a tf\.function"):
            add_up(0.0)


def test_each_batch_of_a_group_is_refused():
    with fb.from_arrays(FLOATS).batch(6).feed("tensorflow") as fed:
        for count in range(10):
            add_up = tf.function(lambda x: x + tf.reduce_sum(next(fed)), autograph=False)
            with pytest.raises(FeedError, match=r"inside a tf\.function"):
                add_up(0.0)
            assert next(fed)[0, 1] == 60 * count + 1


def test_an_upload_inside_a_tf_function_is_the_same_tensor_as_outside():
    add_up = tf.function(lambda: tf.reduce_sum(fb.upload_once(FLOATS, to="tensorflow")))
    assert float(add_up()) == pytest.approx(float(tf.reduce_sum(fb.upload_once(FLOATS, to="tensorflow"))))
