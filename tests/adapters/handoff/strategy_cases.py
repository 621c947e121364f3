"""Per-replica values for strategies of TensorFlow, here with two devices on one CPU.

`tests/test_framework_cases.py` runs this file in the process of Keras on TensorFlow, which has two CPU devices.
"""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.adapters.handoff import tensorflow_replicas
from forebay.adapters.handoff.tensorflow_replicas import ReplicaDeviceHandOff, ReplicaHandOff
from forebay.errors import PipelineError
from forebay.pipeline.plan import LENT_SLOTS

DEVICES = ["CPU:0", "CPU:1"]
FLOATS = np.random.default_rng(0).random((96, 16)).astype(np.float32)

cpu = tf.config.list_physical_devices("CPU")[0]
if tf.config.get_logical_device_configuration(cpu) is None:  # other cases of this process may have made the devices
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration() for _ in DEVICES])


@pytest.fixture(scope="module")
def mirrored():
    # This reduction needs no collectives. The models of other cases use collectives, and TensorFlow would give the
    # collectives of two strategies in one process the same keys.
    return tf.distribute.MirroredStrategy(DEVICES, tf.distribute.ReductionToOneDevice())


def pipeline_of(rows=96, batch_rows=16, **options):
    arrays = {"x": FLOATS[:rows], "y": np.arange(rows, dtype=np.int32)}
    return fb.from_arrays(arrays).shuffle(seed=3).batch(batch_rows, **options)


def rows_of(strategy, value):
    return np.concatenate([part.numpy() for part in strategy.experimental_local_results(value)])


def test_each_replica_gets_its_part_of_the_rows(mirrored):
    with pipeline_of().feed("tensorflow", device=mirrored) as feed, pipeline_of().feed("numpy") as plain:
        for batch, expected in zip(feed, plain, strict=True):
            parts = mirrored.experimental_local_results(batch["x"])
            assert [part.shape for part in parts] == [(8, 16)] * 2
            assert [part.device[-5:] for part in parts] == DEVICES
            for name, value in batch.items():
                np.testing.assert_array_equal(rows_of(mirrored, value), expected[name])


def test_a_step_of_the_strategy_sees_every_row_once(mirrored):
    @tf.function
    def step(batch):
        replica = tf.distribute.get_replica_context()
        return tf.reduce_sum(batch["y"]) + 0 * replica.replica_id_in_sync_group

    total = 0
    with pipeline_of().feed("tensorflow", device=mirrored) as feed:
        for batch in feed:
            total += int(mirrored.reduce("SUM", mirrored.run(step, args=(batch,)), axis=None))
    assert total == sum(range(96))


def test_training_under_the_strategy_equals_training_on_one_device(mirrored):
    def train(strategy, device):
        with strategy.scope():
            weights = tf.Variable(tf.zeros((16, 1)))

        @tf.function
        def step(batch):
            with tf.GradientTape() as tape:
                error = tf.reduce_sum((batch["x"] @ weights - tf.cast(batch["y"][:, None], tf.float32)) ** 2) / 16
            (gradient,) = tape.gradient(error, [weights])
            context = tf.distribute.get_replica_context()
            weights.assign_sub(0.001 * context.all_reduce("SUM", gradient))

        with pipeline_of().feed("tensorflow", device=device) as feed:
            for batch in feed:
                strategy.run(step, args=(batch,))
        return weights.numpy()

    one = tf.distribute.OneDeviceStrategy("CPU:0")
    np.testing.assert_allclose(train(mirrored, mirrored), train(one, one), rtol=1e-4)


@pytest.mark.parametrize("row_bytes", [1, 3, 64])
def test_parts_that_are_not_aligned_are_copied(mirrored, row_bytes):
    """Without the copy, TensorFlow would abort the process."""
    rows = np.random.default_rng(1).integers(0, 255, (20, row_bytes), np.uint8)
    with fb.from_arrays(rows).batch(10).feed("tensorflow", device=mirrored) as feed:
        for number, batch in enumerate(feed):
            doubled = mirrored.run(lambda part: tf.cast(part, tf.float32) * 2, args=(batch,))
            np.testing.assert_array_equal(rows_of(mirrored, doubled), rows[number * 10 : number * 10 + 10] * 2.0)


def test_one_device_uses_the_memory_of_the_slot():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with pipeline_of().feed("tensorflow", device=strategy) as feed:
        batch = next(feed)
        assert batch["x"].shape == (16, 16)
        assert "TensorFlow uses the memory of the slots" in feed.explain()


def test_a_batch_that_the_user_keeps_stays_valid(mirrored):
    with pipeline_of(batch_rows=2).feed("tensorflow", device=mirrored) as feed:
        kept = [batch["y"] for batch in feed]
        values = [rows_of(mirrored, value).tolist() for value in kept]
        feed.set_epoch(0)
        assert [rows_of(mirrored, batch["y"]).tolist() for batch in feed] == values
        assert [rows_of(mirrored, value).tolist() for value in kept] == values


def test_slots_are_reused(mirrored):
    pipeline = fb.from_arrays(np.zeros((2048, 1024), np.float32)).batch(16).repeat(3)
    with pipeline.feed("tensorflow", device=mirrored) as feed:
        for batch in feed:
            del batch
        assert len(feed._runner._exchange.slots) <= feed.plan.slots + LENT_SLOTS + 2


@given(taken=st.integers(0, 5), shards=st.sampled_from([1, 2]))
def test_an_epoch_resumes_in_the_middle_on_other_shards(mirrored, taken, shards):
    with pipeline_of().feed("tensorflow", device=mirrored) as feed:
        iterator = iter(feed)
        before = [row for _ in range(taken) for row in rows_of(mirrored, next(iterator)["y"]).tolist()]
        state = feed.state_dict()
    after = []
    for shard in range(shards):
        arrays = {"x": FLOATS, "y": np.arange(96, dtype=np.int32)}
        pipeline = fb.from_arrays(arrays).shuffle(seed=3).shard(shard, shards).batch(4)
        with pipeline.feed("tensorflow", device=mirrored) as feed:
            feed.load_state_dict(state)
            after += [row for batch in feed for row in rows_of(mirrored, batch["y"]).tolist()]
    assert sorted(before + after) == list(range(96))


def test_explain_names_the_replicas(mirrored):
    with pipeline_of().feed("tensorflow", device=mirrored) as feed:
        assert "2 replicas" in feed.explain()
        assert "one of 2 parts of the rows; TensorFlow copies the rows from the host" in feed.explain()


def test_rows_that_cannot_be_divided_are_refused(mirrored):
    with pytest.raises(PipelineError, match=r"batch\(15\) cannot be divided into 2"):
        pipeline_of(batch_rows=15).feed("tensorflow", device=mirrored)
    with pytest.raises(PipelineError, match=r"last step has 3 rows.*drop_remainder=True"):
        pipeline_of(rows=67).feed("tensorflow", device=mirrored)
    feed = fb.from_generator(lambda: iter(FLOATS[:9])).batch(4).feed("tensorflow", device=mirrored)
    with feed, pytest.raises(PipelineError, match="a batch of 1 rows cannot be divided into 2"):
        list(feed)


def test_other_strategies_are_refused():
    with pytest.raises(PipelineError, match="Use one of MirroredStrategy"):
        pipeline_of().feed("tensorflow", device=tf.distribute.get_strategy())


def test_a_keras_feed_gets_its_devices_from_the_model(mirrored):
    with pytest.raises(PipelineError, match="strategy of the model"):
        fb.from_arrays((FLOATS, FLOATS)).batch(16).feed("keras", device=mirrored)
    assert keras.backend.backend() == "tensorflow"


def test_sparse_batches_are_refused(mirrored):
    matrix = scipy.sparse.csr_matrix(FLOATS[:16])
    with pytest.raises(PipelineError, match="cannot be divided among several devices"):
        fb.from_arrays(matrix).batch(4, sparse=True).feed("tensorflow", device=mirrored)


@pytest.mark.parametrize(
    ("devices", "gpu_index", "how"),
    [
        (["GPU:1"], 1, "the tensors use the device memory of the slots"),
        (["GPU:0", "GPU:1"], None, "TensorFlow copies the rows from the host"),
    ],
)
def test_only_a_single_gpu_uses_the_memory_of_device_slots(mirrored, devices, gpu_index, how):
    hand_off = ReplicaHandOff(mirrored)
    hand_off._devices = devices
    assert hand_off.gpu_index == gpu_index
    assert how in hand_off.description[1]


def test_tensors_of_one_gpu_become_values_of_the_strategy(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [SimpleNamespace(name="CPU:0")])
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    hand_off = ReplicaHandOff(strategy).for_device(0)
    assert isinstance(hand_off, ReplicaDeviceHandOff)
    (value,) = hand_off.finish([tf.constant([1.0, 2.0])])
    assert rows_of(strategy, value).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("cluster", "task", "split"),
    [
        ({}, ("worker", 0), (2, 0, 1)),
        ({"worker": ["a", "b", "c"]}, ("worker", 2), (2, 2, 3)),
        ({"chief": ["a"], "worker": ["b", "c"]}, ("worker", 1), (2, 2, 3)),
        ({"chief": ["a"], "worker": ["b", "c"]}, ("chief", 0), (2, 0, 3)),
    ],
)
def test_the_workers_of_a_cluster_feed_different_rows(monkeypatch, cluster, task, split):
    class Strategy:
        cluster_resolver = SimpleNamespace(
            cluster_spec=lambda: SimpleNamespace(as_dict=lambda: cluster), task_type=task[0], task_id=task[1]
        )

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Strategy)
    found = tensorflow_replicas._split_over_workers(Strategy(), 2)
    assert (found.parts, found.index, found.count) == split
