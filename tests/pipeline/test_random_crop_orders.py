"""Random boxes of images do not depend on the order of the rows."""

import numpy as np
import pytest
from PIL import Image

import forebay as fb
from forebay.testing import SimulatedEngine

IMAGES, OTHERS, SIZE = 23, 9, (6, 8)
CROP = fb.random_resized_crop(SIZE, scale=(0.2, 0.8))
WEIGHTS = np.arange(IMAGES) + 1.0
ORDERS = {
    "source": lambda rows: rows,
    "shuffle": lambda rows: rows.shuffle(seed=3),
    "block shuffle": lambda rows: rows.shuffle(seed=3, block=4, mix=2),
    "take": lambda rows: rows.shuffle(seed=1).take(7),
    "skip": lambda rows: rows.skip(3).shuffle(seed=1),
    "split": lambda rows: rows.split(0.7, 0.3)[1].shuffle(seed=1),
    "split in sequence": lambda rows: rows.split(0.7, 0.3, seed=None)[1],
    "split by": lambda rows: rows.split(0.5, 0.5, by=np.arange(IMAGES) // 4)[1],
    "select": lambda rows: rows.select([3, 9, 9, 1]),
    "mask": lambda rows: rows.select(np.arange(IMAGES) % 3 == 1).shuffle(seed=2, block=2, mix=2),
    "sample": lambda rows: rows.sample(weights=WEIGHTS, rows=40).shuffle(seed=9, block=5, mix=2),
    "sample without replacement": lambda rows: rows.sample(weights=WEIGHTS, rows=10, replacement=False),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for name, count in (("images", IMAGES), ("others", OTHERS)):
        (root / name).mkdir()
        for number in range(count):
            pixels = np.random.default_rng(number).integers(0, 256, (20 + number, 30, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:02}.png")
    return root


@pytest.fixture(scope="module")
def images(folders):
    return fb.from_images(folders / "images" / "*", resize=CROP, seed=5)


@pytest.fixture(scope="module")
def others(folders):
    return fb.from_images(folders / "others" / "*", resize=CROP, seed=5)


def numbers_of(order, count=IMAGES):
    """Return the row numbers of two epochs of an order, from rows that contain their numbers."""
    return epochs_of(order(fb.from_arrays({"image": np.arange(count)})).batch(4))


def epochs_of(pipeline, **options):
    with pipeline.feed("numpy", **options) as feed:
        return [received(feed) for _ in range(2)]


def received(batches):
    return np.concatenate([np.array(batch["image"]) for batch in batches])


def crops_of(pipeline, passes):
    """Return the crops of all images, in their order, in each of the first passes."""
    crops = []
    with pipeline.batch(1).feed("numpy") as feed:
        for number in range(passes):
            feed.set_epoch(number)
            crops.append(received(feed))
    return np.array(crops)


def merge(parts):
    """Return the rows of all shards in their common order."""
    rows = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for shard, part in enumerate(parts):
        rows[shard :: len(parts)] = part
    return rows


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_has_the_crops_of_its_images(images, name):
    crops, numbers = crops_of(images, 2), numbers_of(ORDERS[name])
    rows = ORDERS[name](images)
    whole = epochs_of(rows.batch(5))
    shards = [epochs_of(rows.shard(shard, 3).batch(2)) for shard in range(3)]
    for epoch in range(2):
        expected = crops[epoch, numbers[epoch]]
        assert np.array_equal(whole[epoch], expected)
        assert np.array_equal(merge([shard[epoch] for shard in shards]), expected)


def test_each_pass_of_repeated_rows_or_batches_has_its_own_crops(images):
    crops = crops_of(images, 4)
    for repeated in (
        lambda rows: rows.shuffle(seed=1).repeat(2).batch(4),
        lambda rows: rows.shuffle(seed=1).batch(4).repeat(2),
    ):
        numbers = epochs_of(repeated(fb.from_arrays({"image": np.arange(IMAGES)})))
        passes = np.repeat([0, 1], IMAGES)
        for epoch, rows in enumerate(epochs_of(repeated(images))):
            assert np.array_equal(rows, crops[2 * epoch + passes, numbers[epoch]])


def test_joined_images_keep_the_crops_of_their_own_source(images, others):
    first, second = crops_of(images, 2), crops_of(others, 2)
    black = fb.from_arrays({"image": np.zeros((3, *SIZE, 3), np.uint8)})
    parts = [first, np.zeros((2, 3, *SIZE, 3), np.uint8), second]
    joined = fb.concat(images, black, others)
    numbers = numbers_of(lambda rows: rows.shuffle(seed=3), IMAGES + 3 + OTHERS)
    for epoch, rows in enumerate(epochs_of(joined.shuffle(seed=3).batch(5))):
        assert np.array_equal(rows, np.concatenate([part[epoch] for part in parts])[numbers[epoch]])
    nested = fb.concat(fb.concat(images.take(5), others), images.skip(20))
    for epoch, rows in enumerate(epochs_of(nested.batch(5))):
        assert np.array_equal(rows, np.concatenate([first[epoch, :5], second[epoch], first[epoch, 20:]]))


@pytest.mark.parametrize("options", [{}, {"stop": "all"}, {"stop": "all", "seed": 4}])
def test_interleaved_images_have_other_crops_in_each_pass_of_a_part(images, others, options):
    first, second = crops_of(images, 2), crops_of(others, 6)

    def mix(one, two):
        return fb.interleave(one.shuffle(seed=1), two.shuffle(seed=2), **options).batch(5)

    arrays = [
        fb.from_arrays({"image": np.arange(start, start + count)}) for start, count in ((0, IMAGES), (99, OTHERS))
    ]
    for epoch, (numbers, rows) in enumerate(zip(epochs_of(mix(*arrays)), epochs_of(mix(images, others)), strict=True)):
        is_first = numbers < 99
        assert np.array_equal(rows[is_first], first[epoch, numbers[is_first]])
        turns = np.arange((~is_first).sum()) // OTHERS
        assert np.array_equal(rows[~is_first], second[epoch * (turns[-1] + 1) + turns, numbers[~is_first] - 99])


@pytest.mark.parametrize("name", ["block shuffle", "sample"])
def test_a_state_in_mid_epoch_resumes_on_another_number_of_shards_with_the_same_crops(images, name):
    rows = ORDERS[name](images)
    expected = epochs_of(rows.batch(1))[1]
    with rows.shard(1, 2).batch(2).feed("numpy") as feed:
        list(feed)
        next(iter(feed))
        state = feed.state_dict()
    assert state["position"] == 4
    shards = []
    for shard in range(3):
        with rows.shard(shard, 3).batch(5).feed("numpy") as feed:
            feed.load_state_dict(state)
            shards.append(received(feed))
    assert np.array_equal(merge(shards), expected[4:])


def test_several_devices_receive_the_same_crops(images):
    pipeline = images.shuffle(seed=3).batch(4, drop_remainder=True)
    expected = epochs_of(pipeline)
    with pipeline.feed("numpy", device=(SimulatedEngine(), SimulatedEngine())) as feed:
        for epoch in range(2):
            found = [row.tobytes() for batch in feed for part in batch for row in np.array(part["image"])]
            assert sorted(found) == sorted(map(bytes, expected[epoch]))
