"""Hand-off cases that every framework must pass.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process.
"""

import gc
import importlib
import os

import ml_dtypes
import numpy as np
import pytest

import forebay as fb
from forebay.errors import SpecError
from forebay.pipeline.plan import LENT_SLOTS

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
FLOATS = np.random.default_rng(0).random((1000, 7)).astype(np.float32)
KINDS = {"torch": "Tensor", "tensorflow": "EagerTensor", "jax": "ArrayImpl"}


@pytest.fixture(scope="module")
def framework():
    return importlib.import_module(FRAMEWORK)


def feed(tree, *, batch=32, **options):
    return fb.from_arrays(tree).shuffle(seed=0).batch(batch).feed(FRAMEWORK, **options)


def address(array):
    if FRAMEWORK == "torch":
        return array.data_ptr()
    if FRAMEWORK == "jax":
        return array.unsafe_buffer_pointer()
    return np.asarray(memoryview(array)).ctypes.data


def test_batches_are_the_frameworks_own_arrays_with_the_right_rows(framework):
    with feed({"x": FLOATS, "row": np.arange(1000, dtype=np.int32)}) as fed:
        for _ in range(2):
            seen = []
            for batch in fed:
                assert type(batch["x"]).__name__ == KINDS[FRAMEWORK]
                rows = np.asarray(batch["row"])
                assert np.array_equal(np.asarray(batch["x"]), FLOATS[rows])
                seen += rows.tolist()
            assert sorted(seen) == list(range(1000))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4", "c8"])
def test_dtypes_are_unchanged(dtype):
    data = np.ones((40, 3), dtype)
    with feed(data, batch=8) as fed:
        assert all(np.asarray(batch).dtype == data.dtype for batch in fed)


def test_batches_use_slot_memory_without_a_copy():
    with fb.from_arrays(FLOATS).batch(100, drop_remainder=True).feed(FRAMEWORK) as fed:
        for batch in fed:
            found = address(batch)
            hosts = [slot.memory.host for slot in fed._runner._exchange.slots.values()]
            starts, sizes = [np.frombuffer(host, np.uint8).ctypes.data for host in hosts], map(len, hosts)
            assert any(start <= found < start + size for start, size in zip(starts, sizes, strict=True))


def test_every_leaf_is_aligned():
    with feed({"a": np.zeros((100, 3), np.uint8), "b": np.zeros(100, np.uint8)}, batch=7) as fed:
        assert all(address(leaf) % 64 == 0 for batch in fed for leaf in batch.values())


def test_batches_that_the_consumer_keeps_do_not_change():
    rows = np.arange(5000, dtype=np.int32)
    with feed(rows, batch=8) as fed:
        kept = [batch for _ in range(2) for batch in fed]
        found = np.concatenate([np.asarray(batch) for batch in kept])
    assert sorted(found.tolist()) == sorted([*range(5000)] * 2)


def test_views_kept_at_random_do_not_change():
    rows = np.arange(4000, dtype=np.int32)
    random, kept = np.random.default_rng(1), []
    with feed(rows, batch=16) as fed:
        for _ in range(5):
            for batch in fed:
                if random.random() < 0.1:
                    kept.append((batch[3:5], np.asarray(batch[3:5]).copy()))
                if kept and random.random() < 0.1:
                    kept.pop(random.integers(len(kept)))
    assert all(np.array_equal(np.asarray(view), copy) for view, copy in kept)


def test_slots_are_reused_and_memory_stays_flat(monkeypatch):
    made = []
    with feed(FLOATS, batch=10, host_bytes="8MB") as fed:
        make = fed._runner._exchange._make_slot
        monkeypatch.setattr(fed._runner._exchange, "_make_slot", lambda: made.append(make()) or made[-1])
        for _ in range(20):
            for batch in fed:
                del batch
        # Count slots and not slot ids: a worker may use up an id at the end of an epoch.
        assert len(made) <= fed.plan.slots + LENT_SLOTS


def test_batches_outlive_their_feed():
    fed = feed(FLOATS)
    batch = next(fed)
    before = np.asarray(batch).copy()
    fed.close()
    del fed
    gc.collect()
    assert np.array_equal(np.asarray(batch), before)


@pytest.mark.parametrize(
    "data",
    [
        np.array(["a", "b"] * 20),
        np.arange(40).astype("M8[s]"),
        np.zeros(40, "i4,f4"),
        np.zeros(40, ml_dtypes.bfloat16),  # frameworks have this type but do not import it from NumPy
    ],
)
def test_unsupported_dtypes_are_refused_with_an_alternative(data):
    with pytest.raises(SpecError, match=r"'array' is .*, which .* cannot take from NumPy.*feed\('numpy'\)"):
        feed(data)


def test_nested_trees_keep_their_structure():
    with feed({"pair": (FLOATS, [FLOATS[:, 0], FLOATS[:, 1]])}) as fed:
        batch = next(fed)
    assert isinstance(batch["pair"], tuple)
    assert isinstance(batch["pair"][1], list)


def test_a_step_of_the_framework_runs_on_a_batch(framework):
    with feed(FLOATS) as fed:
        for batch in fed:
            if FRAMEWORK == "torch":
                total = float((batch * 2).sum())
            elif FRAMEWORK == "jax":
                total = float(framework.jit(lambda x: (x * 2).sum())(batch))
            else:
                total = float(framework.reduce_sum(batch * 2))
            assert total == pytest.approx(float(np.asarray(batch).sum() * 2), rel=1e-4)


def test_64_bit_types_are_narrowed_only_for_jax_and_it_is_reported():
    narrow = FRAMEWORK == "jax"
    with feed({"x": np.arange(100), "y": np.arange(100.0)}) as fed:
        batch = next(fed)
        found = [np.asarray(batch[name]).dtype.itemsize for name in "xy"]
        assert found == ([4, 4] if narrow else [8, 8])
        assert ("x to int32, y to float32" in fed.explain()) == narrow


def test_batches_of_other_loaders_are_accepted(framework):
    if FRAMEWORK == "tensorflow":
        loader = framework.data.Dataset.from_tensor_slices(FLOATS).batch(64)
    elif FRAMEWORK == "torch":
        data = importlib.import_module("torch.utils.data")
        loader = data.DataLoader(data.TensorDataset(framework.from_numpy(FLOATS)), batch_size=64)
    else:
        grain = importlib.import_module("grain")
        loader = grain.MapDataset.source(FLOATS).batch(64).to_iter_dataset()
    with fb.from_batches(loader).feed(FRAMEWORK) as fed:
        for _ in range(2):
            found = [batch[0] if isinstance(batch, list | tuple) else batch for batch in fed]
            assert np.array_equal(np.concatenate([np.asarray(batch) for batch in found]), FLOATS)


def ragged_lists(batch):
    """Return the rows of a ragged batch as lists."""
    if FRAMEWORK == "torch":
        return [row.tolist() for row in batch.unbind()]
    return batch.to_list() if FRAMEWORK == "tensorflow" else [np.asarray(row).tolist() for row in batch]


def ragged_parts(batch):
    """Return the values and the offsets of a ragged batch."""
    if FRAMEWORK == "torch":
        return batch.values(), batch.offsets()
    return (batch.values, batch.row_splits) if FRAMEWORK == "tensorflow" else (batch.values, batch.offsets)


def test_ragged_rows_arrive_in_the_frameworks_own_type():
    texts = [np.arange(length, dtype=np.float32) for length in [3, 0, 5, 1, 2, 0, 0] * 40]
    kinds = {"torch": "NestedTensor", "tensorflow": "RaggedTensor", "jax": "Ragged"}
    rows = fb.from_source([{"text": text, "row": np.int32(row)} for row, text in enumerate(texts)])
    with rows.shuffle(seed=0).batch(6, ragged=True).feed(FRAMEWORK) as fed:
        for _ in range(2):
            for batch in fed:
                assert type(batch["text"]).__name__ == kinds[FRAMEWORK]
                assert ragged_lists(batch["text"]) == [texts[row].tolist() for row in np.asarray(batch["row"])]
                values, offsets = ragged_parts(batch["text"])
                assert "int32" in str(offsets.dtype) if FRAMEWORK == "jax" else "int64" in str(offsets.dtype)
                assert address(values) % 64 == address(offsets) % 64 == 0


def test_a_batch_of_empty_ragged_rows_arrives():
    with fb.from_source([np.zeros(0, np.int32)] * 4).batch(2, ragged=True).feed(FRAMEWORK) as fed:
        assert [ragged_lists(batch) for batch in fed] == [[[], []]] * 2


def test_slots_of_dropped_ragged_batches_are_reused():
    rows = fb.from_source([np.zeros(row % 9, np.int32) for row in range(600)])
    with rows.batch(2, ragged=True).feed(FRAMEWORK) as fed:
        for batch in fed:
            del batch
        assert len(fed._runner._exchange.slots) <= fed.plan.slots + LENT_SLOTS + 1


def test_ragged_batches_pass_through_jit():
    if FRAMEWORK == "jax":
        import jax

        with fb.from_source([np.ones(3), np.ones(1)]).batch(2, ragged=True).feed("jax") as fed:
            doubled = jax.jit(lambda ragged: jax.tree.map(lambda leaf: leaf * 2, ragged))(next(fed))
            assert np.asarray(doubled.values).tolist() == [2.0] * 4
