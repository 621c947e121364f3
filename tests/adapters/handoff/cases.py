"""Hand-off cases that every framework must pass.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process, because frameworks conflict
in one process.
"""

import gc
import importlib
import os

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import forebay as fb
from forebay.errors import SpecError
from forebay.pipeline.plan import LENT_SLOTS

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
FLOATS = np.random.default_rng(0).random((1000, 7)).astype(np.float32)
KINDS = {"torch": "Tensor", "tensorflow": "EagerTensor", "jax": "ArrayImpl"}

SPARSE = {  # the class of sparse tensors, and how they become dense
    "torch": ("Tensor", lambda torch, tensor: np.asarray(tensor.to_dense())),
    "tensorflow": ("SparseTensor", lambda tf, tensor: np.asarray(tf.sparse.to_dense(tensor))),
    "jax": ("BCOO", lambda jax, tensor: np.asarray(tensor.todense())),
}


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


def test_packed_texts_arrive_with_segment_ids_and_positions():
    tokens, offsets = np.arange(1, 200, dtype=np.int32), [0, 3, 50, 57, 100, 199]
    packed = fb.from_ragged(tokens, offsets).pack(60).shuffle(seed=0).batch(2)
    with packed.feed(FRAMEWORK) as fed, packed.feed("numpy") as expected:
        for batch, rows in zip(fed, expected, strict=True):
            assert {type(array).__name__ for array in batch.values()} == {KINDS[FRAMEWORK]}
            assert all(np.array_equal(np.asarray(batch[name]), rows[name]) for name in rows)


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


def test_slots_are_reused_and_memory_does_not_grow(monkeypatch):
    made = []
    with feed(FLOATS, batch=10, host_bytes="8MB") as fed:
        make = fed._runner._exchange._make_slot
        monkeypatch.setattr(fed._runner._exchange, "_make_slot", lambda: made.append(make()) or made[-1])
        for _ in range(20):
            for batch in fed:
                del batch
        # Count slots, not slot ids: at the end of an epoch, a worker thread may take a new id and allocate no slot.
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


def test_64_bit_types_are_narrowed_only_for_jax_and_explain_reports_it():
    narrow = FRAMEWORK == "jax"
    with feed({"x": np.arange(100), "y": np.arange(100.0)}) as fed:
        batch = next(fed)
        found = [np.asarray(batch[name]).dtype.itemsize for name in "xy"]
        assert found == ([4, 4] if narrow else [8, 8])
        assert ("x to int32, y to float32" in fed.explain()) == narrow


@pytest.mark.skipif(FRAMEWORK != "jax", reason="the other frameworks hold 64-bit integers")
def test_integers_that_do_not_fit_into_the_dtype_of_the_framework_cause_a_warning():
    with pytest.warns(UserWarning, match=r"'x' has the int64 value 1099511627785.*jax_enable_x64.*fb\.cast"):
        feed({"x": np.arange(10) + 2**40, "y": np.arange(10)}).close()


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


def test_frames_become_the_frameworks_arrays():
    frame = pd.DataFrame({"a": FLOATS[:, 0], "b": FLOATS[:, 1], "row": np.arange(1000, dtype=np.int32)})
    pipeline = fb.from_frame(frame, columns={"x": ["a", "b"], "row": "row"}).shuffle(seed=0).batch(32)
    with pipeline.feed(FRAMEWORK) as fed:
        for batch in fed:
            assert type(batch["x"]).__name__ == KINDS[FRAMEWORK]
            assert np.array_equal(np.asarray(batch["x"]), FLOATS[np.asarray(batch["row"]), :2])


def test_sparse_rows_become_the_frameworks_dense_arrays():
    matrix = scipy.sparse.random(1000, 50, 0.05, "csr", np.float32, 0)
    with feed({"x": matrix, "row": np.arange(1000, dtype=np.int32)}) as fed:
        for batch in fed:
            assert type(batch["x"]).__name__ == KINDS[FRAMEWORK]
            assert np.array_equal(np.asarray(batch["x"]), matrix.toarray()[np.asarray(batch["row"])])


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i4", "f4", "c8"])
def test_device_hand_offs_make_dense_rows_from_values_and_columns(dtype):
    values, columns = np.array([[1, 0, 0], [1, 1, 1], [0, 0, 0]], dtype), np.array([[4, 2, 2], [3, 0, 0], [0, 0, 0]])
    module = importlib.import_module(f"forebay.adapters.handoff.{FRAMEWORK}")
    hand_off = getattr(module, f"{FRAMEWORK.capitalize()}DeviceHandOff")
    with feed({"values": values, "columns": columns.astype(np.int32)}, batch=3) as fed:
        batch = next(fed)
    dense = np.asarray(hand_off.to_dense(None, batch["values"], batch["columns"], 5))
    expected = np.zeros((3, 5), dtype)
    np.put_along_axis(expected, np.asarray(batch["columns"]).astype(np.intp), np.asarray(batch["values"]), axis=1)
    assert dense.dtype == expected.dtype
    assert np.array_equal(dense, expected)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_sparse_batches_are_the_frameworks_sparse_tensors(framework):
    matrix = scipy.sparse.random(100, 50, 0.05, "csr", np.float32, 0)
    rows = np.arange(100, dtype=np.int32)
    with fb.from_arrays({"x": matrix, "row": rows}).shuffle(seed=0).batch(32, sparse=True).feed(FRAMEWORK) as fed:
        for batch in fed:
            kind, to_dense = SPARSE[FRAMEWORK]
            assert type(batch["x"]).__name__ == kind
            assert np.array_equal(to_dense(framework, batch["x"]), matrix.toarray()[np.asarray(batch["row"])])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_device_hand_offs_make_sparse_tensors_from_values_and_columns(framework):
    values, counts = np.array([[1, 2], [3, 3], [0, 0]], np.float32), np.array([2, 1, 0], np.int32)
    columns = np.array([[0, 4], [2, 2], [0, 0]], np.int32)
    module = importlib.import_module(f"forebay.adapters.handoff.{FRAMEWORK}")
    hand_off = getattr(module, f"{FRAMEWORK.capitalize()}DeviceHandOff")
    with fb.from_arrays((values, columns, counts)).batch(3).feed(FRAMEWORK) as fed:
        found = hand_off.to_sparse(None, *next(fed), 5)
    assert SPARSE[FRAMEWORK][1](framework, found).tolist() == [[1, 0, 0, 0, 2], [0, 0, 3, 0, 0], [0, 0, 0, 0, 0]]


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


def test_without_a_gpu_a_device_map_runs_in_the_framework():
    images = np.random.default_rng(0).integers(0, 255, (100, 4, 4, 3), dtype=np.uint8)
    start = fb.from_arrays({"image": images, "row": np.arange(100, dtype=np.int32)}).shuffle(seed=0).batch(32)

    def double(batch):
        kinds.add(type(batch["row"]).__name__)
        return {"image": batch["image"], "row": batch["row"] * 2}

    def finish(pipeline):
        return pipeline.map(fb.flip(fields="image")).map(fb.cast({"row": "float32"})).map(fb.scale({"image": 0.5}))

    kinds = set()
    with finish(start.map(double, where="device")).feed(FRAMEWORK, device="cpu") as fed:
        found = [(np.asarray(batch["image"]), np.asarray(batch["row"])) for batch in fed]
        assert "no GPU: the framework runs it" in fed.explain()
    assert kinds == {KINDS[FRAMEWORK]}
    with finish(start.map(lambda batch: {**batch, "row": batch["row"] * 2})).feed("numpy") as fed:
        for batch, (image, row) in zip(fed, found, strict=True):
            np.testing.assert_array_equal(image, batch["image"])
            np.testing.assert_array_equal(row, batch["row"])


def test_a_device_map_that_fails_without_a_gpu_loses_no_batch():
    def fail_at_first(batch):
        failures.append(batch)
        if len(failures) == 1:
            raise ValueError("the first batch")
        return batch

    failures = []
    with fb.from_arrays(FLOATS).batch(500).map(fail_at_first, where="device").feed(FRAMEWORK, device="cpu") as fed:
        with pytest.raises(ValueError, match="the first batch"):
            next(iter(fed))
        fed.load_state_dict(fed.state_dict())
        assert [np.asarray(batch)[0, 0] for batch in fed] == [FLOATS[0, 0], FLOATS[500, 0]]
