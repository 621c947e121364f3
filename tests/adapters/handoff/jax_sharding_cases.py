"""Global arrays of JAX on the two CPU devices of this process.

`tests/test_framework_cases.py` runs this file in the process of JAX, which has two devices.
"""

import gc
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import forebay as fb
from forebay.adapters.handoff import jax_sharding
from forebay.adapters.handoff.jax_sharding import GlobalShape, JaxShardedHandOff, ShardedBatches
from forebay.errors import PipelineError
from forebay.pipeline.plan import LENT_SLOTS

DEVICES = jax.devices("cpu")[:2]
MESH = Mesh(np.array(DEVICES), ("data",))
GRID = Mesh(np.array(DEVICES).reshape(2, 1), ("data", "model"))
COLUMNS = Mesh(np.array(DEVICES).reshape(1, 2), ("data", "model"))
SPLIT = NamedSharding(MESH, PartitionSpec("data"))
FLOATS = np.random.default_rng(0).random((96, 16)).astype(np.float32)


def pipeline_of(rows=96, batch_rows=16, **options):
    arrays = {"x": FLOATS[:rows], "y": np.arange(rows, dtype=np.int32)}
    return fb.from_arrays(arrays).shuffle(seed=3).batch(batch_rows, **options)


def batches_of(feed):
    return [{name: np.asarray(leaf).tolist() for name, leaf in batch.items()} for batch in feed]


@pytest.mark.parametrize(
    ("mesh", "spec", "part"),
    [
        (MESH, PartitionSpec("data"), (8, 16)),
        (GRID, PartitionSpec(("data", "model")), (8, 16)),
        (GRID, PartitionSpec("model"), (16, 16)),
        (MESH, PartitionSpec(), (16, 16)),
        (MESH, PartitionSpec(None), (16, 16)),
        (MESH, PartitionSpec(("data",)), (8, 16)),
    ],
)
def test_each_device_gets_its_part_of_the_rows(mesh, spec, part):
    sharding = NamedSharding(mesh, spec)
    with pipeline_of().feed("jax", device=sharding) as feed, pipeline_of().feed("numpy") as plain:
        for batch, expected in zip(feed, plain, strict=True):
            assert batch["x"].sharding.is_equivalent_to(sharding, 2)
            assert [shard.data.shape for shard in batch["x"].addressable_shards] == [part] * 2
            for name, leaf in batch.items():
                np.testing.assert_array_equal(leaf, expected[name])


@pytest.mark.parametrize("spec", [PartitionSpec(None, "model"), PartitionSpec("data", "model")])
def test_a_sharding_may_divide_other_axes(spec):
    with fb.from_arrays(FLOATS).batch(16).feed("jax", device=NamedSharding(COLUMNS, spec)) as feed:
        batch = next(feed)
    assert [shard.data.shape for shard in batch.addressable_shards] == [(16, 8)] * 2
    np.testing.assert_array_equal(batch, FLOATS[:16])


def test_a_sharding_of_one_device_is_accepted():
    with pipeline_of().feed("jax", device=SingleDeviceSharding(DEVICES[1])) as feed:
        batch = next(feed)
    assert batch["x"].devices() == {DEVICES[1]}


def test_aligned_parts_use_the_memory_of_the_slot():
    with fb.from_arrays(FLOATS).batch(16).feed("jax", device=SPLIT) as feed:
        first, second = (shard.data.unsafe_buffer_pointer() for shard in next(feed).addressable_shards)
    assert second - first == FLOATS[:8].nbytes


def test_the_public_functions_of_jax_give_the_same_arrays(monkeypatch):
    with pipeline_of().feed("jax", device=SPLIT) as feed:
        expected = batches_of(feed)
    monkeypatch.setattr(jax_sharding, "find_batched_put", lambda: None)
    with pipeline_of().feed("jax", device=SPLIT) as feed:
        batch = next(iter(feed))
        assert batch["x"].sharding == SPLIT
        feed.set_epoch(0)
        assert batches_of(feed) == expected


def test_a_batch_that_the_user_keeps_stays_valid():
    with pipeline_of(batch_rows=2).feed("jax", device=SPLIT) as feed:
        kept = list(feed)
        values = batches_of(kept)
        feed.set_epoch(0)
        assert batches_of(feed) == values
        assert batches_of(kept) == values


@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()])
def test_slots_are_reused(spec):
    pipeline = fb.from_arrays(np.zeros((4096, 1024), np.float32)).batch(16).repeat(3)
    with pipeline.feed("jax", device=NamedSharding(MESH, spec)) as feed:
        for batch in feed:
            jax.block_until_ready(batch + 1)
            del batch
        gc.collect()
        allocated = len(feed._runner._exchange.slots)
        assert allocated <= feed.plan.slots + LENT_SLOTS + 2


@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()])
def test_batches_may_be_donated(spec):
    add_one = jax.jit(lambda array: array + 1, donate_argnums=0)
    with fb.from_arrays(FLOATS).batch(16).feed("jax", device=NamedSharding(MESH, spec)) as feed:
        for number, batch in enumerate(feed):
            np.testing.assert_array_equal(add_one(batch), FLOATS[number * 16 : number * 16 + 16] + 1)


def test_a_jitted_step_keeps_the_sharding():
    step = jax.jit(lambda batch: batch["x"].sum(axis=1) * batch["y"])
    with pipeline_of().feed("jax", device=SPLIT) as feed:
        for batch in feed:
            result = step(batch)
            assert len(result.sharding.device_set) == 2
            np.testing.assert_allclose(result, np.asarray(batch["x"]).sum(axis=1) * np.asarray(batch["y"]), rtol=1e-5)


@given(taken=st.integers(0, 6), shards=st.sampled_from([1, 2]), data=st.data())
def test_an_epoch_resumes_in_the_middle_on_other_shards(taken, shards, data):
    with pipeline_of().feed("jax", device=SPLIT) as feed:
        iterator = iter(feed)
        before = [row for _ in range(taken) for row in np.asarray(next(iterator)["y"]).tolist()]
        state = feed.state_dict()
    if taken == 6:
        assert (state["epoch"], state["position"]) in ((0, 96), (1, 0))
        return
    after = []
    for shard in range(shards):
        arrays = {"x": FLOATS, "y": np.arange(96, dtype=np.int32)}
        pipeline = fb.from_arrays(arrays).shuffle(seed=3).shard(shard, shards).batch(4)
        with pipeline.feed("jax", device=SPLIT) as feed:
            feed.load_state_dict(state)
            after += [row for batch in feed for row in np.asarray(batch["y"]).tolist()]
    assert sorted(before + after) == list(range(96))


def test_batches_of_a_stream_and_ready_made_batches_are_divided():
    with fb.from_generator(lambda: iter(FLOATS)).batch(16).feed("jax", device=SPLIT) as feed:
        np.testing.assert_array_equal(np.concatenate([np.asarray(batch) for batch in feed]), FLOATS)
    with fb.from_batches([FLOATS[:8], FLOATS[8:12]]).feed("jax", device=SPLIT) as feed:
        assert [batch.addressable_shards[1].data.shape for batch in feed] == [(4, 16), (2, 16)]


def test_padded_batches_are_divided():
    rows = [np.arange(length, dtype=np.int32) for length in (1, 3, 2, 4)]
    with fb.from_generator(lambda: iter(rows)).batch(2, pad=0).feed("jax", device=SPLIT) as feed:
        assert [batch.addressable_shards[0].data.shape for batch in feed] == [(1, 3), (1, 4)]


def test_maps_and_narrowed_numbers_reach_all_devices():
    pipeline = fb.from_arrays(np.arange(8)).batch(4).map(lambda rows: rows * 2)
    with pipeline.feed("jax", device=SPLIT) as feed:
        assert [np.asarray(batch).tolist() for batch in feed] == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_explain_names_the_devices():
    with pipeline_of().feed("jax", device=SPLIT) as feed:
        assert "2 cpu devices" in feed.explain()
        assert "one of 2 parts of the rows" in feed.explain()


def test_a_batch_size_that_cannot_be_divided_is_refused():
    with pytest.raises(PipelineError, match=r"batch\(15\) cannot be divided into 2 .* batch\(16\)"):
        pipeline_of(batch_rows=15).feed("jax", device=SPLIT)


def test_a_remainder_that_cannot_be_divided_is_refused():
    with pytest.raises(PipelineError, match=r"last step has 3 rows.*drop_remainder=True"):
        pipeline_of(rows=67).feed("jax", device=SPLIT)
    with pipeline_of(rows=67, drop_remainder=True).feed("jax", device=SPLIT) as feed:
        assert len(list(feed)) == 4
    with pipeline_of(rows=67).take(4).feed("jax", device=SPLIT) as feed:
        assert len(list(feed)) == 4
    with pipeline_of(rows=66).feed("jax", device=SPLIT) as feed:
        assert [len(batch["y"]) for batch in feed] == [16, 16, 16, 16, 2]


def test_ragged_rows_are_not_divided():
    pipeline = fb.from_ragged(np.arange(20), np.array([0, 3, 5, 9, 20])).batch(2, ragged=True)
    with pytest.raises(PipelineError, match=r"cannot be divided into 2 parts.*batch\(pad=...\)"):
        pipeline.feed("jax", device=SPLIT)


def test_a_position_with_an_odd_remainder_is_refused():
    with pipeline_of(batch_rows=3).feed("numpy") as plain:
        next(plain)
        state = plain.state_dict()
    with pipeline_of().feed("jax", device=SPLIT) as feed, pytest.raises(PipelineError, match="last step has 13 rows"):
        feed.load_state_dict(state)


def test_the_remainder_of_a_stream_is_refused_when_it_arrives():
    feed = fb.from_generator(lambda: iter(FLOATS[:9])).batch(4).feed("jax", device=SPLIT)
    with feed, pytest.raises(PipelineError, match="a batch of 1 rows cannot be divided into 2"):
        list(feed)


def test_a_leaf_with_too_few_axes_is_refused():
    with pytest.raises(PipelineError, match=r"'y' cannot be placed.*it has 1 axes"):
        pipeline_of().feed("jax", device=NamedSharding(COLUMNS, PartitionSpec("data", "model")))


def test_a_leaf_whose_columns_cannot_be_divided_is_refused():
    sharding = NamedSharding(COLUMNS, PartitionSpec("data", "model"))
    with pytest.raises(PipelineError, match="cannot be placed"):
        fb.from_arrays(FLOATS[:, :15]).batch(16).feed("jax", device=sharding)


@pytest.mark.parametrize("device", [MESH, PartitionSpec("data")])
def test_an_object_that_names_no_devices_is_refused(device):
    with pytest.raises(PipelineError, match="Pass a NamedSharding"):
        pipeline_of().feed("jax", device=device)


def test_sparse_batches_are_refused():
    matrix = scipy.sparse.csr_matrix(FLOATS[:16])
    with pytest.raises(PipelineError, match="cannot be divided among several devices"):
        fb.from_arrays(matrix).batch(4, sparse=True).feed("jax", device=SPLIT)


def test_another_framework_does_not_accept_a_sharding():
    with pytest.raises(fb.ForebayError, match="is unknown"):
        pipeline_of().feed("numpy", device=SPLIT)


class FakeDevice:
    """Replaces a device of JAX. It knows only the index of its process."""

    def __init__(self, process_index):
        self.process_index = process_index


@pytest.mark.parametrize(
    ("parts", "split"),
    [
        ({0: (0, 1), 1: (2, 3)}, (2, 0, 2, 2)),
        ({0: (2, 3), 1: (0, 1)}, (2, 1, 2, 2)),
        ({0: (0, 2), 1: (1, 3)}, (2, 0, 2, 2)),
        ({0: (0, 1), 1: (0, 1)}, (2, 0, 1, 2)),
        ({0: (0,), 1: (0,), 2: (1,), 3: (1,)}, (1, 0, 2, 4)),
    ],
)
def test_processes_with_different_rows_are_counted(monkeypatch, parts, split):
    devices = {FakeDevice(process): part for process, numbers in parts.items() for part in numbers}
    monkeypatch.setattr(jax_sharding, "_row_parts", lambda sharding: devices)
    found = ShardedBatches(SPLIT).split
    assert (found.parts, found.index, found.count, found.processes) == split


@pytest.mark.parametrize("parts", [{0: (0, 1), 1: (1, 2)}, {0: (0, 1), 1: (2,)}])
def test_processes_that_share_some_rows_are_refused(monkeypatch, parts):
    devices = {FakeDevice(process): part for process, numbers in parts.items() for part in numbers}
    monkeypatch.setattr(jax_sharding, "_row_parts", lambda sharding: devices)
    with pytest.raises(PipelineError, match="unevenly among 2 processes"):
        ShardedBatches(SPLIT)


def test_a_mesh_without_a_device_of_this_process_is_refused(monkeypatch):
    monkeypatch.setattr(jax_sharding, "_row_parts", lambda sharding: {FakeDevice(1): 0})
    with pytest.raises(PipelineError, match="no device of process 0"):
        ShardedBatches(SPLIT)


def test_arrays_of_one_gpu_become_global_without_a_copy(monkeypatch):
    monkeypatch.setattr("forebay.adapters.handoff.jax._find_device", lambda index: DEVICES[0])
    sharding = NamedSharding(Mesh(np.array(DEVICES[:1]), ("data",)), PartitionSpec("data"))
    hand_off = JaxShardedHandOff(ShardedBatches(sharding)).for_device(0)
    leaves = [jax.device_put(FLOATS[:6], DEVICES[0]), jax.device_put(np.arange(6), DEVICES[0])]
    for leaf, found in zip(leaves, hand_off.finish(leaves), strict=True):
        assert found.sharding == sharding
        assert found.unsafe_buffer_pointer() == leaf.unsafe_buffer_pointer()


def test_the_gpu_of_a_process_gets_its_part_of_the_columns(monkeypatch):
    """The second device acts as a device of another process.

    JAX cannot make the array, so check its parts.
    """
    monkeypatch.setattr("forebay.adapters.handoff.jax._find_device", lambda index: DEVICES[0])
    batches = ShardedBatches(NamedSharding(COLUMNS, PartitionSpec("data", "model")))
    part = GlobalShape((4, 16), DEVICES[:1], [(slice(0, 4), slice(8, 16))])
    monkeypatch.setattr(batches, "locate", lambda shape: part)
    made = []
    monkeypatch.setattr(jax, "make_array_from_single_device_arrays", lambda *arguments: made.append(arguments))
    JaxShardedHandOff(batches).for_device(0).finish([jax.device_put(FLOATS[:4], DEVICES[0])])
    np.testing.assert_array_equal(made[0][2][0], FLOATS[:4, 8:])


@pytest.mark.parametrize(
    ("platforms", "gpu_index", "how"),
    [
        (["gpu"], 3, "the arrays use the device memory of the slots"),
        (["gpu", "gpu"], None, "JAX copies the rows from the host"),
        (["tpu"], None, "JAX copies the rows from the host"),
        (["cpu"], None, "JAX uses the memory of the slots"),
    ],
)
def test_only_a_single_gpu_uses_the_memory_of_device_slots(monkeypatch, platforms, gpu_index, how):
    devices = [SimpleNamespace(platform=platform, local_hardware_id=3) for platform in platforms]
    monkeypatch.setattr(ShardedBatches, "local_devices", devices)
    hand_off = JaxShardedHandOff(ShardedBatches(SPLIT))
    assert hand_off.gpu_index == gpu_index
    assert how in hand_off.description[1]
