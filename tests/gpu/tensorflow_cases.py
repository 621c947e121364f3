"""TensorFlow graphs together with feeds, on a GPU.

test_feed.py runs this file in its own process, because frameworks conflict in one process.
"""

import numpy as np
import pytest
import tensorflow as tf
from tests.gpu.frameworks import stamp_rows

import forebay as fb
from forebay.errors import FeedError


def test_a_feed_inside_a_function_is_refused():
    with fb.from_arrays(stamp_rows(1_000)).batch(100).feed("tensorflow", device="cuda") as feed:

        @tf.function(autograph=False)  # autograph would wrap the error
        def epoch():
            return [tf.reduce_sum(batch["x"]) for batch in feed]

        with pytest.raises(FeedError, match=r"inside a tf\.function"):
            epoch()
        assert sum(1 for _ in feed) == 10


@pytest.mark.parametrize("jit", [True, False])
def test_a_compiled_step_sees_every_batch(jit):
    step = tf.function(lambda x: tf.reduce_sum(tf.cast(x % 251, tf.int64)), jit_compile=jit)
    data = stamp_rows(40_000)
    with fb.from_arrays(data).batch(400).feed("tensorflow", device="cuda", resident="never") as feed:
        for _ in range(3):
            sums = [step(batch["x"]) for batch in feed]
            expected = (data["x"].astype("i8") % 251).reshape(100, -1).sum(1)
            assert np.array_equal([int(total) for total in sums], expected)


@pytest.mark.parametrize("resident", ["always", "never"])
@pytest.mark.parametrize("kind", [tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy])
def test_a_strategy_of_one_gpu_gets_the_tensors_of_the_device_slots(kind, resident):
    strategy = kind(["GPU:0"]) if kind is tf.distribute.MirroredStrategy else kind("GPU:0")
    data = stamp_rows(4_000)
    with fb.from_arrays(data).batch(400).feed("tensorflow", device=strategy, resident=resident) as feed:
        total = 0
        for batch in feed:
            (part,) = strategy.experimental_local_results(batch["x"])
            assert part.device.endswith("GPU:0")
            sums = strategy.run(lambda x: tf.reduce_sum(tf.cast(x % 251, tf.int64)), args=(batch["x"],))
            total += int(strategy.reduce("SUM", sums, axis=None))
        assert total == (data["x"].astype("i8") % 251).sum()
        assert feed.plan.transport is not None
