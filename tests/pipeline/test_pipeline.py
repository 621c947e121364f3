"""Pipelines: errors for invalid input, and special cases of valid input."""

import sys

import numpy as np
import pytest

import forebay as fb
from forebay.errors import DeviceError, PipelineError, SourceError, SpecError, TransformError


def test_arrays_of_unequal_length_are_named_with_their_lengths():
    with pytest.raises(SpecError, match="'x' has 3, 'y' has 4"):
        fb.from_arrays({"x": np.zeros(3), "y": np.zeros(4)})


@pytest.mark.parametrize("tree", [np.zeros((0, 3)), {"x": []}, (np.zeros(0),)])
def test_an_empty_source_is_refused(tree):
    with pytest.raises(SourceError, match="no rows"):
        fb.from_arrays(tree)


@pytest.mark.parametrize("tree", [{}, (), {"x": {}}])
def test_an_empty_tree_is_refused(tree):
    with pytest.raises(SpecError, match="contains an empty dict"):
        fb.from_arrays(tree)


def test_object_arrays_are_refused_with_a_remedy():
    with pytest.raises(SpecError, match=r"'x' has dtype object.*astype"):
        fb.from_arrays({"x": np.array([None, 1])})


def test_a_single_value_is_refused():
    with pytest.raises(SpecError, match="'y' is a single value"):
        fb.from_arrays({"x": np.zeros(3), "y": np.float64(3)})


@pytest.mark.parametrize("rows", [0, -1, 2.5, "8", True, None])
def test_a_batch_size_must_be_a_positive_number(rows):
    with pytest.raises(PipelineError, match=rf"batch\({rows!r}\): pass a whole number"):
        fb.from_arrays(np.arange(10)).batch(rows)


def test_numpy_numbers_are_accepted_as_numbers():
    pipeline = fb.from_arrays(np.arange(10))
    assert pipeline.take(np.int64(6)).batch(np.uint8(4)) == pipeline.take(6).batch(4)


@pytest.mark.parametrize("seed", [None, "a", 1.5])
def test_a_seed_must_be_a_whole_number(seed):
    with pytest.raises(PipelineError, match=rf"shuffle\(seed={seed!r}\): pass a whole number"):
        fb.from_arrays(np.arange(10)).shuffle(seed=seed)
    if seed is not None:
        with pytest.raises(PipelineError, match=rf"map\(seed={seed!r}\): pass a whole number"):
            fb.from_arrays(np.arange(10)).map(lambda row, rng: row, seed=seed)


def test_iterating_a_pipeline_raises_and_names_feed():
    with pytest.raises(PipelineError, match=r"Iterate pipeline\.feed"):
        iter(fb.from_arrays(np.arange(10)).batch(2))


def test_an_invalid_array_spec_is_refused_with_its_value():
    with pytest.raises(SpecError, match=r"ArraySpec\(3, 'f4'\) has no valid shape and dtype"):
        fb.ArraySpec(3, "f4")


def test_an_unknown_dtype_is_refused():
    with pytest.raises(SpecError, match="'float99' is not a dtype"):
        fb.cast({"y": "float99"})


def test_device_bytes_need_a_device():
    with pytest.raises(PipelineError, match="device_bytes"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", device_bytes="1GB")


def test_dropping_all_rows_is_refused():
    with pytest.raises(PipelineError, match=r"batch\(11, drop_remainder=True\) would drop all of 10 rows"):
        fb.from_arrays(np.arange(10)).batch(11, drop_remainder=True)


def test_a_batch_larger_than_the_data_is_one_short_batch():
    with fb.from_arrays(np.arange(10)).batch(100).feed("numpy") as feed:
        assert [len(batch) for batch in feed] == [10]


def test_a_shard_without_a_batch_is_refused():
    with pytest.raises(PipelineError, match="10 rows are divided among 20 shards, shard 15 gets no batch of 4"):
        fb.from_arrays(np.arange(10)).shard(15, 20).batch(4).feed("numpy")


@pytest.mark.parametrize("endless", [True, False])
def test_a_shard_without_a_row_is_refused_even_when_it_repeats(endless):
    pipeline = fb.from_arrays(np.arange(2)).shard(2, 3).batch(1)
    with pytest.raises(PipelineError, match="nothing to feed"):
        (pipeline.repeat() if endless else pipeline).feed("numpy")


def test_dropping_all_rows_of_a_shard_is_refused_even_when_it_repeats():
    with pytest.raises(PipelineError, match="nothing to feed"):
        fb.from_arrays(np.arange(7)).batch(4, drop_remainder=True).shard(0, 2).repeat().feed("numpy")


def test_masked_arrays_are_refused():
    with pytest.raises(SpecError, match="its mask would be lost"):
        fb.from_arrays(np.ma.masked_equal(np.arange(5), 3))


def test_lists_of_different_length_are_refused_with_a_remedy():
    with pytest.raises(SpecError, match="Give all rows one shape"):
        fb.from_arrays([[1, 2], [3]])


def test_a_dict_of_arrays_is_refused_as_a_source():
    with pytest.raises(SpecError, match=r"call from_arrays\(\)"):
        fb.from_source({"x": np.arange(3)})


def test_rows_of_zero_bytes_are_fed():
    with fb.from_arrays((np.zeros((10, 0), np.float32), np.arange(10))).batch(3).feed("numpy") as feed:
        assert [batch[0].shape for batch in feed] == [(3, 0), (3, 0), (3, 0), (1, 0)]


def test_records_of_mixed_byte_order_are_fed_unchanged():
    data = np.zeros(4, [("a", "<i4"), ("b", ">i4")])
    data["a"], data["b"] = [1, 2, 3, 4], [5, 6, 7, 8]
    with fb.from_arrays(data).batch(4).feed("numpy") as feed:
        (batch,) = feed
    assert (batch["a"].tolist(), batch["b"].tolist()) == ([1, 2, 3, 4], [5, 6, 7, 8])


def test_a_pipeline_without_batch_is_refused():
    with pytest.raises(PipelineError, match=r"Call batch\(n\) before feed"):
        fb.from_arrays(np.arange(10)).feed("numpy")


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 3), ("0", 3), (0, 0)])
def test_a_shard_index_out_of_range_is_refused(index, count):
    with pytest.raises(PipelineError):
        fb.from_arrays(np.arange(10)).shard(index, count)


class torch_device:  # noqa: N801  # str() returns the name, as for a torch.device
    def __init__(self, name):
        self._name = name

    def __str__(self):
        return self._name


def test_sharding_twice_is_refused():
    with pytest.raises(PipelineError, match="sharded already"):
        fb.from_arrays(np.arange(10)).shard(0, 2).shard(0, 2)


def test_row_methods_after_batch_are_refused():
    with pytest.raises(PipelineError, match=r"shuffle\(\) works on rows: call it before batch"):
        fb.from_arrays(np.arange(10)).batch(2).shuffle(seed=0)


def test_a_second_batch_call_is_refused():
    with pytest.raises(PipelineError, match=r"batch\(2\) was called already: call batch\(\) once"):
        fb.from_arrays(np.arange(10)).batch(2).batch(2)


def test_an_unknown_feed_option_is_refused_with_the_known_options():
    text = "takes no 'cores'. It takes device, resident, host_bytes, device_bytes; naming fields is for"
    with pytest.raises(PipelineError, match=text):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", cores=4)


def test_a_file_name_is_refused_as_an_array():
    with pytest.raises(SpecError, match=r"Use from_files\(\) to read files"):
        fb.from_arrays("rows.npz")


def test_a_map_that_returns_none_is_refused():
    with pytest.raises(TransformError, match=r"map\(.*\) returned None. Return"):
        fb.from_arrays(np.arange(10)).batch(2).map(lambda batch: None).feed("numpy")


@pytest.mark.parametrize(
    "make", [lambda numbers: (each for each in numbers), iter, lambda numbers: map(np.sqrt, numbers)]
)
def test_an_iterator_that_was_already_read_is_refused_in_the_next_epoch(make):
    rows = make(np.arange(6, dtype="float32").tolist())
    with fb.from_generator(lambda: rows).batch(2).feed("numpy") as feed:
        assert len(list(feed)) == 3
        with pytest.raises(SourceError, match="the same iterator twice, and it was already read"):
            list(feed)


@pytest.mark.parametrize("device", [torch_device("cpu"), "CPU"])
def test_a_device_may_be_a_device_object_or_an_upper_case_name(device):
    assert len(list(fb.from_arrays(np.arange(4)).batch(2).feed("numpy", device=device))) == 2


@pytest.mark.parametrize("device", [True, object(), 1.5])
def test_a_value_that_is_not_a_device_is_refused(device):
    with pytest.raises(DeviceError, match="is unknown: choose 'auto'"):
        fb.from_arrays(np.arange(4)).batch(2).feed("numpy", device=device)


def test_a_python_without_the_interpreter_lock_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(PipelineError, match=r"without the global interpreter lock.*Set PYTHON_GIL=1"):
        fb.from_arrays(np.arange(4)).batch(2).feed("numpy")


@pytest.mark.parametrize("host_bytes", ["lots", "-5MB", 0, "0.4", "10 parsecs", True])
def test_a_budget_that_is_not_a_number_of_bytes_is_refused(host_bytes):
    with pytest.raises(SpecError, match="is not a number of bytes"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", host_bytes=host_bytes)


def test_an_unknown_word_for_resident_is_refused():
    with pytest.raises(PipelineError, match="'auto', 'always' or 'never'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", resident="sometimes")


def test_field_names_are_refused_for_other_frameworks_than_keras():
    with pytest.raises(PipelineError, match="takes no 'x'"):
        fb.from_arrays(np.arange(10)).batch(2).feed("numpy", x="image")


def test_equal_pipelines_compare_equal_and_are_not_changed():
    base = fb.from_arrays(np.arange(10))
    assert base.batch(2) == base.batch(2)
    assert base.batching is None


class Squares:
    def __len__(self):
        return 20

    def __getitem__(self, row):
        return {"row": row, "square": np.float32(row**2)}


class SquaresByBatch(Squares):
    batch_reads = 0

    def __getitems__(self, rows):
        type(self).batch_reads += 1
        return [self[row] for row in rows]


@pytest.mark.parametrize("source", [Squares(), SquaresByBatch()])
def test_an_object_with_len_and_getitem_is_a_source(source):
    with fb.from_source(source).shuffle(seed=0).batch(6).feed("numpy") as feed:
        batches = list(feed)
    assert sorted(row for batch in batches for row in batch["row"].tolist()) == list(range(20))
    assert all(np.array_equal(batch["square"], batch["row"] ** 2) for batch in batches)


def test_a_source_with_getitems_is_read_in_whole_batches():
    SquaresByBatch.batch_reads = 0
    with fb.from_source(SquaresByBatch()).batch(20).feed("numpy") as feed:
        list(feed)
    assert 1 <= SquaresByBatch.batch_reads <= 6


def test_a_completion_shows_methods_and_no_internals():
    pipeline = fb.from_arrays(np.arange(4)).batch(2)
    shown = {name for name in dir(pipeline) if not name.startswith("_")}
    assert {"batch", "feed", "map", "shuffle", "split", "class_names", "specs", "structure"} <= shown
    assert shown.isdisjoint({"fingerprint", "epoch_batches", "batching", "schedule", "transforms", "opening"})
    assert pipeline.epoch_batches == 2


def test_a_value_that_is_not_a_source_is_refused():
    loader = type("DataLoader", (), {"dataset": [1, 2], "__iter__": lambda self: iter([]), "__len__": lambda self: 1})()
    with pytest.raises(SpecError, match=r"from_batches\(loader\), or from_source\(loader\.dataset\)"):
        fb.from_source(loader)
    with pytest.raises(SpecError, match=r"got int\. Pass an object with __len__ and __getitem__"):
        fb.from_source(3)


def test_a_window_sets_how_many_blocks_are_mixed():
    pipeline = fb.from_arrays(np.arange(100_000)).shuffle(seed=0, block=1000, window=8 * 1000 * 20).batch(10)
    assert pipeline.order.max_open_blocks == 20
    explained = pipeline.feed("numpy").explain()
    assert "the rows of 20 blocks (156.2 KiB) are mixed" in explained
    assert f"stay within {pipeline.order.max_row_distance} positions of each other" in explained


def test_the_reason_of_the_order_ignores_take_and_repeat():
    rows = fb.from_arrays(np.arange(1000))
    reasons = {
        "the order of the source": [rows, rows.take(100), rows.repeat(2)],
        "any row may come anywhere": [rows.shuffle(seed=0).repeat(2), rows.shuffle(seed=0).take(100)],
        "blocks come in random order": [
            rows.shuffle(seed=0, block=10).take(100),
            rows.shuffle(seed=0, block=10).repeat(2),
        ],
    }
    for reason, pipelines in reasons.items():
        assert all(reason in pipeline.batch(10).feed("numpy").explain() for pipeline in pipelines)


def test_transforms_after_a_process_map_are_reported_in_the_process():
    pipeline = fb.from_arrays(np.arange(100.0)).batch(10).map(fb.cast("float32")).map(np.negative, where="process")
    with pipeline.map(fb.cast("float32")).map(np.square, where="thread").feed("numpy") as feed:
        placements = [decision.choice for decision in feed.plan.decisions[-5:-1]]
        transforms = [*["thread"] * len(feed.plan.thread_transforms), *["process"] * len(feed.plan.worker_transforms)]
    assert placements == transforms == ["thread", "process", "process", "process"]


@pytest.mark.parametrize("options", [{}, {"block": None}, {"block": 10, "mix": 3}])
def test_a_window_of_rows_that_can_be_indexed_needs_a_block(options):
    with pytest.raises(PipelineError, match=r"shuffle\(block=4096, window='64MB'\)"):
        fb.from_arrays(np.arange(100)).shuffle(window="1MB", **options)


@pytest.mark.parametrize(("options", "message"), [({"where": "process"}, "where="), ({"workers": 2}, "workers=")])
def test_a_transform_of_forebay_is_not_sent_to_worker_processes(options, message):
    rows = fb.from_arrays({"x": np.zeros(4)})
    with pytest.raises(PipelineError, match=rf"{message}.*Leave {message} out"):
        rows.map(fb.cast({"x": "float32"}), **options)
