"""The device part of a request, and where transforms run."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.adapters.handoff.numpy import NumpyHandOff
from forebay.core.spec import ArraySpec
from forebay.engines.host import HostEngine
from forebay.errors import PipelineError
from forebay.pipeline.device_request import NOT_CONTIGUOUS, Probe, device_input, output_specs, split_transforms
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.request import resolve_request
from forebay.pipeline.spec_inference import infer_specs, padded_transforms
from forebay.pipeline.target import Target

DTYPES = ("uint8", "int16", "float16", "int32", "float32", "float64")


@pytest.fixture(autouse=True)
def no_saved_probe(monkeypatch):
    """Ignore the measured ceilings of this machine."""
    monkeypatch.setattr(Probe, "cached", lambda: None)


def device_target(available=1 << 30):
    hand_off = NumpyHandOff()
    return Target(HostEngine(), hand_off, SimpleNamespace(index=3, syncs_on_import=False), available)


def host_transforms(pipeline):
    """Return the transforms that run on the host in a feed to the CPU."""
    options = FeedOptions(device="cpu", host_bytes="64MiB")
    return resolve_request(pipeline, options).plan_input.transforms


def request_device(pipeline, *, resident="auto", budget=None):
    return device_input(pipeline, device_target(), host_transforms(pipeline), resident, budget)


def arrays(rows=10):
    return fb.from_arrays({"x": np.zeros((rows, 4), np.uint8), "y": np.zeros(rows, np.int32)})


def split_batches_of_two(pipeline):
    """Split the transforms of the pipeline, with batches of two rows."""
    pipeline = pipeline.batch(2) if pipeline.batching is None else pipeline
    return split_transforms(pipeline, padded_transforms(pipeline), NumpyHandOff())


def names_of(transforms):
    return [str(transform) for transform in transforms]


def host_and_device(pipeline):
    """Return the transforms of the host and the transforms of the device."""
    traced, device_transforms = split_batches_of_two(pipeline)
    return names_of(traced.transforms), names_of(device_transforms)


def crossing_nbytes(pipeline, count):
    """Return the crossing bytes per row if the first `count` transforms run on the host."""
    return sum(spec.nbytes for spec in infer_specs(pipeline, pipeline.transforms[:count]).specs)


def same(batch):
    return batch


# Rows and speeds in the request


def test_there_is_no_device_input_without_a_device():
    pipeline = arrays().batch(2)
    assert device_input(pipeline, Target(HostEngine(), NumpyHandOff()), host_transforms(pipeline), "auto", None) is None


def test_contiguous_rows_in_memory_can_be_pulled():
    found = request_device(arrays().batch(2), budget=1000)
    assert (found.name, found.rows, found.extents) == ("cuda:3", 10, (1, 1))
    assert (found.available_nbytes, found.budget_nbytes, found.resident) == (1 << 30, 1000, "auto")
    assert found.speeds is None


def test_the_device_input_has_the_measured_speeds(monkeypatch):
    pulled = object()
    monkeypatch.setattr(Probe, "cached", lambda: SimpleNamespace(device=SimpleNamespace(pull=pulled)))
    assert request_device(arrays().batch(2)).speeds is pulled


def test_ceilings_without_a_device_have_no_pull_speeds(monkeypatch):
    monkeypatch.setattr(Probe, "cached", lambda: SimpleNamespace(device=None))
    assert request_device(arrays().batch(2)).speeds is None


def test_every_file_is_one_extent(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 3)))
    np.save(tmp_path / "b.npy", np.zeros((7, 3)))
    found = request_device(fb.from_files(str(tmp_path / "*.npy")).batch(2))
    assert (found.rows, found.extents) == (12, (2,))


STAGED = {
    "the rows are read in sequence, not by index": lambda: fb.from_generator(lambda: iter([np.zeros(3)] * 4)).batch(2),
    "batches may differ in size": lambda: arrays().batch(2, pad=0),
    "map(same) runs on the host": lambda: arrays().batch(2).map(same),
    "the rows are not in memory that can be page-locked": lambda: fb.from_source([np.zeros(3)] * 4).batch(2),
    NOT_CONTIGUOUS: lambda: fb.from_arrays(np.zeros((10, 4), order="F")).batch(2),
}


@pytest.mark.parametrize("why", STAGED)
def test_rows_that_a_device_cannot_pull_are_staged_with_the_reason(why):
    found = request_device(STAGED[why]())
    assert found.extents == ()
    assert found.why_staged == why


@pytest.mark.parametrize("why", STAGED)
def test_rows_that_a_device_cannot_pull_cannot_be_resident(why):
    with pytest.raises(PipelineError, match=r"resident='always' needs rows.*Use resident='auto'") as refused:
        request_device(STAGED[why](), resident="always")
    assert why in str(refused.value)


def test_rows_in_another_byte_order_cannot_be_pulled():
    assert request_device(fb.from_arrays(np.zeros((10, 4), ">f4")).batch(2)).why_staged == NOT_CONTIGUOUS


# Where transforms run


def test_a_widening_cast_runs_on_the_device():
    assert host_and_device(arrays().map(fb.cast({"x": "float32"}))) == ([], ["cast(x: float32)"])


def test_a_narrowing_cast_runs_on_the_host():
    pipeline = fb.from_arrays(np.zeros((10, 4))).map(fb.cast("float16"))
    assert host_and_device(pipeline) == (["cast(float16)"], [])


def test_transforms_are_split_where_rows_are_smallest():
    pipeline = fb.from_arrays(np.zeros((10, 4))).map(fb.cast("uint8")).map(fb.scale(1 / 255))
    assert host_and_device(pipeline) == (["cast(uint8)"], ["scale(0.003922)"])


def test_a_transform_that_keeps_the_size_runs_on_the_device():
    pipeline = fb.from_arrays(np.zeros((10, 4), np.float32)).map(fb.scale(2.0)).map(fb.cast("int32"))
    assert host_and_device(pipeline) == ([], ["scale(2)", "cast(int32)"])


def test_the_bytes_of_all_fields_decide_where_a_cast_runs():
    pipeline = fb.from_arrays({"x": np.zeros((10, 4), np.uint8), "y": np.zeros(10)})
    assert host_and_device(pipeline.map(fb.cast({"x": "uint16", "y": "int32"}))) == ([], ["cast(x: uint16, y: int32)"])
    assert host_and_device(pipeline.map(fb.cast({"x": "uint16", "y": "int16"}))) == (["cast(x: uint16, y: int16)"], [])


def test_one_hot_stays_on_the_host_with_all_transforms_before_it():
    pipeline = arrays().map(fb.cast({"x": "float32"})).map(fb.one_hot({"y": 3})).map(fb.cast({"x": "float64"}))
    assert host_and_device(pipeline) == (["cast(x: float32)", "one_hot(y: 3)"], ["cast(x: float64)"])


def test_casts_before_a_map_on_the_host_stay_there():
    pipeline = arrays().batch(2).map(fb.cast({"x": "float32"})).map(same).map(fb.cast({"x": "float64"}))
    assert host_and_device(pipeline) == (["cast(x: float32)", "map(same)"], ["cast(x: float64)"])


def test_casts_around_a_device_map_run_on_the_device_too():
    pipeline = arrays().batch(2).map(same).map(fb.cast({"x": "float32"})).map(same, where="device")
    assert host_and_device(pipeline.map(fb.cast({"x": "uint8"}))) == (
        ["map(same)"],
        ["cast(x: float32)", "map(same)", "cast(x: uint8)"],
    )


def test_a_device_map_is_not_called_to_infer_specs():
    called = []
    split_batches_of_two(arrays().batch(2).map(lambda batch: called.append(batch) or batch, where="device"))
    assert called == []


@pytest.mark.parametrize("where", ["thread", "process"])
def test_a_host_map_cannot_follow_a_device_map(where):
    pipeline = arrays().batch(2).map(same, where="device").map(same, where=where)
    with pytest.raises(PipelineError, match=r"map\(same\) would run on the host after map\(same\).*put it before"):
        split_batches_of_two(pipeline)


def test_one_hot_cannot_follow_a_map_on_the_device():
    pipeline = arrays().batch(2).map(same, where="device").map(fb.one_hot({"y": 3}))
    with pytest.raises(PipelineError, match=r"one_hot\(y: 3\) would run on the host"):
        split_batches_of_two(pipeline)


def test_rows_are_not_mapped_one_by_one_on_a_device():
    with pytest.raises(PipelineError, match=r"map\(same, rows\).*put it after batch\(\)"):
        split_batches_of_two(arrays().map(same, where="device"))


def test_host_maps_have_the_structure_they_must_return():
    traced, _ = split_batches_of_two(arrays().batch(2).map(same))
    assert traced.transforms[0].structure.paths == ("x", "y")
    assert len(traced.stages) == len(traced.transforms) + 1


casts_and_scales = st.sampled_from(DTYPES).flatmap(
    lambda dtype: st.sampled_from([fb.cast({"x": dtype}), fb.cast({"y": dtype}), fb.scale({"x": 2.0}, dtype=dtype)])
)


@given(transforms=st.lists(casts_and_scales, max_size=6), dtype=st.sampled_from(DTYPES))
def test_the_fewest_bytes_cross_and_the_device_runs_as_many_transforms_as_possible(transforms, dtype):
    pipeline = fb.from_arrays({"x": np.zeros((4, 3), dtype), "y": np.zeros(4, np.int16)}).batch(2)
    for transform in transforms:
        pipeline = pipeline.map(transform)
    traced, device_transforms = split_batches_of_two(pipeline)
    cut = len(traced.transforms)
    crossing = [crossing_nbytes(pipeline, count) for count in range(len(transforms) + 1)]
    assert (*traced.transforms, *device_transforms) == tuple(transforms)
    assert sum(spec.nbytes for spec in traced.specs) == min(crossing)
    assert cut == crossing.index(min(crossing))


# Specs of the batches that the user gets


def test_output_specs_without_device_transforms_are_those_of_the_host():
    traced, device_transforms = split_batches_of_two(arrays())
    assert output_specs(traced, device_transforms, NumpyHandOff()) == (traced.specs, traced.structure)


def test_output_specs_include_the_device_transforms():
    specs, structure = output_specs(
        *split_batches_of_two(arrays().map(fb.scale({"x": 2.0})).map(fb.cast({"y": "int64"}))), NumpyHandOff()
    )
    assert specs == (ArraySpec((4,), "float32"), ArraySpec((), "int64"))
    assert structure.paths == ("x", "y")


def test_output_specs_of_a_device_map_are_unknown():
    assert output_specs(*split_batches_of_two(arrays().batch(2).map(same, where="device")), NumpyHandOff()) is None


def test_output_specs_are_inferred_without_a_warning(monkeypatch):
    monkeypatch.setattr(ArraySpec, "empty", lambda spec, rows: np.full(spec.batch_shape(rows), np.nan, spec.dtype))
    specs, _ = output_specs(
        *split_batches_of_two(fb.from_arrays(np.zeros((4, 3), np.float32)).map(fb.cast("int64"))), NumpyHandOff()
    )
    assert specs == (ArraySpec((3,), "int64"),)
