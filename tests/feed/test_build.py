"""Transforms on a device give the same results as on the host. Here NumPy arrays stand for device arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.support.device_like import DeviceLikeEngine, FakeDeviceHandOff

import forebay as fb
from forebay.core.spec import flatten
from forebay.errors import SpecError
from forebay.feed.build import DeviceTransforms
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Map, apply_all

KEY = (5, 1, 30)  # identifies a batch; it seeds the random numbers of maps


class NarrowingHandOff(FakeDeviceHandOff):
    """The hand-off of a framework without 64-bit floats, such as JAX by default."""

    def framework_dtype(self, dtype):
        return np.dtype("float32") if dtype == np.float64 else dtype


def staged_rows(rows=60):
    """Return rows that are not contiguous. A device cannot pull these rows, so the feed stages them."""
    random = np.random.default_rng(0)
    return {"x": np.asfortranarray(random.integers(0, 255, (rows, 4), np.uint8)), "row": np.arange(rows)}


def two_epochs(pipeline, engine="cpu"):
    """Return the batches of two epochs of a feed."""
    with pipeline.feed("numpy", device=engine) as feed:
        return [batch for _ in range(2) for batch in feed]


def two_epochs_on_device(pipeline, hand_off=None):
    return two_epochs(pipeline, DeviceLikeEngine(hand_off or FakeDeviceHandOff()))


def apply_on_device(transforms, tree, *, first=0, key=KEY):
    leaves, structure = flatten(tree)
    context = BatchContext(*key, slice(0, len(leaves[0])))
    return DeviceTransforms(transforms, structure, FakeDeviceHandOff(), first=first)(leaves, context)


def apply_on_host(transforms, tree, *, first=0, key=KEY):
    leaves, structure = flatten(tree)
    batch_key = BatchContext(*key, slice(0, len(leaves[0])))
    leaves, structure = apply_all(transforms, leaves, structure, batch_key, first=first)
    return structure.unflatten(leaves)


def assert_same(found, expected):
    found_leaves, structure = flatten(found)
    expected_leaves, expected_structure = flatten(expected)
    assert structure == expected_structure
    assert [leaf.dtype for leaf in found_leaves] == [leaf.dtype for leaf in expected_leaves]
    for left, right in zip(found_leaves, expected_leaves, strict=True):
        np.testing.assert_array_equal(left, right)


def device_map(function):
    return Map.of(function, where="device", by_row=False, seed=7)


def add_noise(batch, rng):
    return {"x": batch["x"] + rng.random(batch["x"].shape), "row": batch["row"]}


def add_drawn_numbers(batch, rng):
    return {"x": batch["x"], "row": batch["row"], "drawn": rng.random(len(batch["row"]))}


def refuse(batch):
    raise KeyError("no such thing")


integers_or_bools = hnp.arrays(st.sampled_from(["uint8", "int16", "int32", "bool"]), (3, 2), elements=st.integers(0, 1))
floats = hnp.arrays("float32", (3, 2), elements=st.floats(0, 200, width=16))
casts_and_scales = st.one_of(
    st.sampled_from(["uint8", "int32", "float32", "float64"]).flatmap(
        lambda dtype: st.sampled_from([fb.cast({"x": dtype}), fb.cast({"y.0": dtype})])
    ),
    st.builds(
        lambda factor, offset, dtype: fb.scale({"x": factor}, offset=offset, dtype=dtype),
        st.floats(0.001, 10),
        st.sampled_from([0.0, 0.5, 0.1, 100.0]),
        st.sampled_from(["float32", "float64"]),
    ),
)


@given(x=integers_or_bools | floats, y=integers_or_bools, transforms=st.lists(casts_and_scales, min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # NumPy warns on both paths
def test_casts_and_scaling_give_the_same_bits_as_on_the_host(x, y, transforms):
    tree = {"x": x, "y": (y,)}
    assert_same(apply_on_device(transforms, tree), apply_on_host(transforms, tree))


def test_a_scale_and_a_cast_for_all_fields_reach_all_fields():
    tree = (np.arange(6, dtype=np.uint8), np.arange(6, dtype=np.int16))
    transforms = [fb.scale(0.5, offset=1.0), fb.cast("float64")]
    found = apply_on_device(transforms, tree)
    assert_same(found, apply_on_host(transforms, tree))
    assert [leaf.dtype for leaf in found] == [np.float64] * 2


def test_maps_receive_the_tree_and_may_return_another_structure():
    transforms = [
        device_map(lambda batch: {"sum": batch["x"] + batch["y"], "pair": (batch["x"], batch["y"])}),
        fb.cast({"sum": "float32", "pair.1": "int16"}),
        device_map(lambda batch: (batch["sum"], *batch["pair"])),
    ]
    found = apply_on_device(transforms, {"x": np.arange(4), "y": np.arange(4) * 10})
    assert_same(found, (np.arange(4, dtype="f4") * 11, np.arange(4), np.arange(4, dtype="i2") * 10))


@pytest.mark.parametrize("first", [0, 3])
def test_random_numbers_equal_those_on_the_host(first):
    tree = {"x": np.zeros((5, 2)), "row": np.arange(5)}
    transforms = [device_map(add_noise), fb.scale({"x": 2.0}), device_map(add_noise)]
    assert_same(apply_on_device(transforms, tree, first=first), apply_on_host(transforms, tree, first=first))


def test_random_numbers_differ_between_transforms_and_batches():
    tree = {"x": np.zeros((5, 2)), "row": np.arange(5)}
    drawn = [apply_on_device([device_map(add_noise)], tree, first=number)["x"].tolist() for number in range(3)]
    drawn += [
        apply_on_device([device_map(add_noise)], tree, key=(5, 1, position))["x"].tolist() for position in (31, 32)
    ]
    assert len({str(numbers) for numbers in drawn}) == 5


def test_an_error_keeps_its_type_and_names_the_transform():
    with pytest.raises(KeyError, match="no such thing") as failed:
        apply_on_device([fb.cast("int16"), device_map(refuse)], np.arange(3))
    assert failed.value.__notes__ == ["in map(refuse), on the device"]


def test_the_error_names_a_missing_field():
    with pytest.raises(SpecError, match=r"names 'z', but the fields are 'x'") as failed:
        apply_on_device([fb.cast({"z": "int16"})], {"x": np.arange(3)})
    assert failed.value.__notes__ == ["in cast(z: int16), on the device"]


# Through a whole feed


def test_a_feed_with_casts_on_the_device_equals_a_feed_with_casts_on_the_host():
    pipeline = fb.from_arrays(staged_rows()).shuffle(seed=3).batch(7)
    pipeline = pipeline.map(fb.scale({"x": 1 / 255}, offset=0.5)).map(fb.cast({"row": "float64"}))
    found, expected = two_epochs_on_device(pipeline), two_epochs(pipeline)
    assert len(found) == 18
    for left, right in zip(found, expected, strict=True):
        assert_same(left, right)


@pytest.mark.parametrize("shard", [(0, 1), (1, 3)])
def test_a_map_on_the_device_draws_the_same_random_numbers_as_on_the_host(shard):
    pipeline = fb.from_arrays(staged_rows()).shuffle(seed=3).shard(*shard).batch(7).map(fb.one_hot({"row": 60}))
    found = two_epochs_on_device(pipeline.map(add_drawn_numbers, where="device"))
    expected = two_epochs(pipeline.map(add_drawn_numbers))
    assert len(found) >= 6
    for left, right in zip(found, expected, strict=True):
        assert_same(left, right)


def test_an_error_on_the_device_is_raised_for_its_batch():
    pipeline = fb.from_arrays(staged_rows()).batch(7).map(refuse, where="device")
    with pytest.raises(KeyError, match="no such thing") as failed:
        two_epochs_on_device(pipeline)
    assert "in map(refuse), on the device" in failed.value.__notes__


def test_scaling_to_whole_numbers_gives_whole_numbers_as_on_the_host():
    tree, transforms = np.arange(5, dtype=np.int8), [fb.scale(3, offset=1, dtype="int32")]
    assert_same(apply_on_device(transforms, tree), apply_on_host(transforms, tree))


def test_a_framework_that_narrows_draws_the_same_random_numbers():
    rows = {"x": np.asfortranarray(np.zeros((20, 4))), "row": np.arange(20)}
    pipeline = fb.from_arrays(rows).batch(5)
    found = two_epochs_on_device(pipeline.map(add_drawn_numbers, where="device"), NarrowingHandOff())
    expected = two_epochs(pipeline.map(add_drawn_numbers))
    assert found[0]["x"].dtype == np.float32
    assert [batch["drawn"].tolist() for batch in found] == [batch["drawn"].tolist() for batch in expected]


class PairingHandOff(FakeDeviceHandOff):
    """A hand-off that makes a pair of each array and its length, after all transforms."""

    def finish(self, leaves):
        return [(leaf, len(leaf)) for leaf in leaves]


@pytest.mark.parametrize("transforms", [(), (fb.cast("float32"),)])
def test_a_hand_off_finishes_the_leaves_after_the_device_transforms(transforms):
    pipeline = fb.from_arrays(staged_rows()).batch(20)
    for transform in transforms:
        pipeline = pipeline.map(transform)
    found = two_epochs_on_device(pipeline, PairingHandOff())
    expected = two_epochs(pipeline)
    for batch, plain in zip(found, expected, strict=True):
        assert {name: length for name, (_, length) in batch.items()} == {"x": 20, "row": 20}
        assert_same({name: leaf for name, (leaf, _) in batch.items()}, plain)
