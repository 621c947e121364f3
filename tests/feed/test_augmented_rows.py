"""Augmented rows: each row has the same pixels on every path of a feed."""

import json
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from tests.feed.mapped_functions import same
from tests.pipeline.row_chains import chains
from tests.support.device_like import DeviceLikeEngine, FakeDeviceHandOff, ImageHandOff

import forebay as fb
from forebay.errors import BudgetError, PipelineError
from forebay.testing import SimulatedEngine

IMAGES = np.random.default_rng(0).integers(0, 256, (31, 9, 11, 3), np.uint8)
STAGED = np.asfortranarray(IMAGES)  # a device cannot pull these rows
SHARDS = st.integers(1, 4)
BATCHES = st.integers(1, 9)


def rows_of(images):
    return {"image": images, "row": np.arange(len(images))}


def generate():
    return ({"image": image, "row": row} for row, image in enumerate(IMAGES))


def loaded_batches(batch=4):
    return [{"image": IMAGES[i : i + batch], "row": np.arange(31)[i : i + batch]} for i in range(0, 31, batch)]


def augment(pipeline):
    return (
        pipeline.map(fb.random_resized_crop((6, 7)), seed=5)
        .map(fb.flip(0.5, 0.5))
        .map(fb.color_jitter(0.4, 0.4, 0.4, 0.2))
    )


def checksums_of(batches):
    """Return (row, checksum of its pixels) of each row."""
    return [
        (row, image.astype(np.int64).ravel() @ np.arange(1, image.size + 1))
        for batch in batches
        for row, image in zip(batch["row"].tolist(), batch["image"], strict=True)
    ]


def epochs_of(pipeline, epochs=2, **options):
    with pipeline.feed("numpy", **options) as feed:
        return [checksums_of(feed) for _ in range(epochs)]


PIPELINES = {
    "in order": fb.from_arrays(rows_of(IMAGES)),
    "shuffled": fb.from_arrays(rows_of(IMAGES)).shuffle(seed=3),
    "staged": fb.from_arrays(rows_of(STAGED)).shuffle(seed=3),
    "in blocks": fb.from_arrays(rows_of(IMAGES)).shuffle(seed=3, block=5, mix=2),
    "repeated": fb.from_arrays(rows_of(IMAGES[:12])).shuffle(seed=3).repeat(3),
    "sampled": fb.from_arrays(rows_of(IMAGES)).sample(weights=np.arange(31), seed=1),
    "interleaved": fb.interleave(fb.from_arrays(rows_of(IMAGES[:9])), fb.from_arrays(rows_of(IMAGES[9:]))),
    "selected": fb.from_arrays(rows_of(IMAGES)).select(np.arange(31) % 2 == 0).shuffle(seed=2),
    "stream": fb.from_generator(generate),
    "mixed stream": fb.from_generator(generate).shuffle(seed=2, window=2000),
}
NAMES = st.sampled_from(list(PIPELINES))


@cache
def expected_epochs(name):
    return epochs_of(augment(PIPELINES[name]).batch(4))


@pytest.mark.slow
@given(name=NAMES, batch=BATCHES, shards=SHARDS, after=st.booleans(), budget=st.sampled_from(["8MiB", "1GB"]))
def test_batch_size_shards_and_budget_do_not_change_the_pixels(name, batch, shards, after, budget):
    found = [[], []]
    for index in range(shards):
        sharded = PIPELINES[name].shard(index, shards)
        pipeline = augment(sharded.batch(batch)) if after else augment(sharded).batch(batch)
        for epoch, rows in enumerate(epochs_of(pipeline, host_bytes=budget)):
            found[epoch] += rows
    assert [sorted(rows) for rows in found] == [sorted(rows) for rows in expected_epochs(name)]


@pytest.mark.slow
@given(
    name=NAMES,
    batches=st.tuples(BATCHES, BATCHES),
    shards=st.tuples(SHARDS, SHARDS),
    steps=st.integers(0, 3),
    epoch=st.integers(0, 1),
)
def test_a_resume_on_other_shards_and_batches_does_not_change_the_pixels(name, batches, shards, steps, epoch):
    assume(steps * batches[0] * shards[0] < len(expected_epochs(name)[0]) - 3)  # the state must be inside an epoch
    augmented, seen = augment(PIPELINES[name]), []
    for shard in range(shards[0]):
        with augmented.shard(shard, shards[0]).batch(batches[0]).feed("numpy") as feed:
            feed.set_epoch(epoch)
            seen += checksums_of(islice(feed, steps))
            state = feed.state_dict()
    for shard in range(shards[1]):
        with augmented.shard(shard, shards[1]).batch(batches[1]).feed("numpy") as feed:
            feed.load_state_dict(json.loads(json.dumps(state)))
            seen += checksums_of(feed)
    assert sorted(seen) == sorted(expected_epochs(name)[epoch])


@pytest.mark.slow
@given(name=st.sampled_from(["staged", "stream", "mixed stream"]), batch=BATCHES, shard=st.integers(0, 1))
def test_a_device_that_computes_the_pixels_gets_the_same_pixels(name, batch, shard):
    pipeline = augment(PIPELINES[name]).shard(shard, 2).batch(batch)
    assert epochs_of(pipeline, device=DeviceLikeEngine(ImageHandOff())) == epochs_of(pipeline)


def draw_image(row):
    """Return an image whose pixels depend on the row."""
    return {"image": (np.arange(60, dtype=np.uint8) * 3 + np.uint8(row)).reshape(4, 5, 3), "row": row}


@given(chain=chains(), epoch=st.integers(0, 2), count=SHARDS, batch=BATCHES)
def test_chains_of_methods_have_the_same_pixels_on_all_shards(chain, epoch, count, batch):
    augmented = augment(chain.pipeline.map(draw_image))
    found = []
    for index in range(min(count, chain.length)):
        with augmented.shard(index, count).batch(batch).feed("numpy") as feed:
            feed.set_epoch(epoch)
            found += checksums_of(feed)
    with augmented.batch(7).feed("numpy") as feed:
        feed.set_epoch(epoch)
        assert sorted(found) == sorted(checksums_of(feed))


@pytest.mark.parametrize("name", PIPELINES)
def test_each_occurrence_of_a_row_has_its_own_pixels(name):
    pixels = [checksum for epoch in expected_epochs(name) for _, checksum in epoch]
    assert len(set(pixels)) == len(pixels)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shuffled", "repeated", "mixed stream"])
def test_worker_processes_and_a_simulated_device_have_the_same_pixels(name):
    pipeline = PIPELINES[name].map(same, where="process")
    with augment(pipeline).batch(5).feed("numpy") as feed:
        in_process = checksums_of(feed)
    with augment(PIPELINES[name].map(same)).batch(3).feed("numpy", device=SimulatedEngine()) as feed:
        assert checksums_of(feed) == in_process


def test_each_pass_of_a_repeat_after_batch_has_its_own_pixels():
    (pixels,) = epochs_of(augment(PIPELINES["in order"]).batch(4).repeat(2), epochs=1)
    assert len(set(pixels)) == 62
    (others,) = epochs_of(augment(PIPELINES["in order"]).batch(7).repeat(2), epochs=1)
    assert sorted(others) == sorted(pixels)


def test_shards_and_devices_do_not_change_the_pixels_of_ready_made_batches():
    pipeline = augment(fb.from_batches(loaded_batches))
    whole = epochs_of(pipeline)
    assert len({checksum for epoch in whole for _, checksum in epoch}) == 62
    shards = [epochs_of(pipeline.shard(index, 2)) for index in range(2)]
    assert [sorted(left + right) for left, right in zip(*shards, strict=True)] == [sorted(rows) for rows in whole]
    assert epochs_of(pipeline, device=DeviceLikeEngine(ImageHandOff())) == whole


# Where the pixels are computed


def explain(pipeline, hand_off):
    with pipeline.batch(4).feed("numpy", device=DeviceLikeEngine(hand_off)) as feed:
        return feed.explain()


def test_the_device_computes_pixels_even_if_more_bytes_cross():
    text = explain(fb.from_arrays(rows_of(STAGED)).map(fb.random_resized_crop(4)), ImageHandOff())
    assert "the device computes pixels faster than the CPU; random numbers belong to the row" in text


def test_a_device_without_array_operations_gets_pixels_of_the_host():
    pipeline = fb.from_arrays(rows_of(STAGED)).map(fb.random_resized_crop(4))
    text = explain(pipeline, FakeDeviceHandOff())
    assert "device computes pixels" not in text
    assert "random numbers belong to the row" in text


def test_a_map_after_an_augmentation_keeps_the_augmentation_on_the_host():
    text = explain(fb.from_arrays(rows_of(STAGED)).map(fb.flip()).map(same), ImageHandOff())
    assert "device computes pixels" not in text


def test_an_augmentation_may_follow_a_device_map():
    pipeline = fb.from_arrays(rows_of(STAGED)).batch(8)
    rows = pipeline.map(same, where="device").map(fb.flip(), seed=1)
    expected = epochs_of(pipeline.map(same).map(fb.flip(), seed=1))
    assert epochs_of(rows, device=DeviceLikeEngine(ImageHandOff())) == expected
    with pytest.raises(PipelineError, match="Put it before that map"):
        rows.feed("numpy", device=DeviceLikeEngine(FakeDeviceHandOff()))


def test_normalization_has_no_random_numbers():
    text = explain(fb.from_arrays(rows_of(STAGED)).map(fb.normalize(0.5, 0.5)), ImageHandOff())
    assert "random numbers" not in text


def test_the_plan_counts_memory_for_results_between_augmentations():
    with augment(PIPELINES["staged"]).batch(31).feed("numpy") as feed, PIPELINES["staged"].batch(31).feed() as plain:
        assert feed.plan.scratch_nbytes > plain.plan.scratch_nbytes + 2 * 31 * 6 * 7 * 3
    pipeline = fb.from_arrays({"image": np.zeros((4, 512, 512, 3), np.uint8)}).map(fb.flip()).map(fb.flip()).batch(4)
    with pytest.raises(BudgetError, match=r"too small: a batch of 4 rows takes 3\.0 MiB"):
        pipeline.feed("numpy", host_bytes="24MiB")
    with pipeline.feed("numpy", host_bytes="40MiB") as feed:
        assert feed.plan.nbytes <= 40 << 20


def test_images_are_decoded_while_others_are_augmented(tmp_path):
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    pipeline = fb.from_images(tmp_path / "*.png").map(fb.flip())
    with pipeline.batch(4).feed("numpy") as feed, pipeline.batch(31).feed("numpy") as whole:
        assert feed.plan.threads >= 2
        assert "the decoder threads decode the next ones" in feed.explain()
        found = np.concatenate([batch["image"] for batch in feed])
        np.testing.assert_array_equal(found, next(iter(whole))["image"])
