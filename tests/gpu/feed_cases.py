"""Feeds on a GPU, for the framework in FOREBAY_FRAMEWORK.

test_feed.py runs this file once for each framework, in its own process, because frameworks conflict in one process.
"""

import gc
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from tests.gpu.frameworks import ALL, stamp_rows
from tests.gpu.photos import write_photos

import forebay as fb
from forebay.engines.cuda.nvjpeg import load_nvjpeg
from forebay.errors import BudgetError, FrameworkError

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
STRESS_BATCHES = int(os.environ.get("FOREBAY_STRESS_BATCHES", "10000"))
ROWS = {  # "odd": rows with an odd number of bytes; "apart": rows with gaps between them
    "large": lambda: {"x": RNG.integers(0, 255, (600, 224, 224, 3), dtype=np.uint8), "row": np.arange(600, dtype="i4")},
    "small": lambda: {"x": RNG.random((100_000, 100), dtype="f4"), "row": np.arange(100_000, dtype="i4")},
    "odd": lambda: {"x": RNG.integers(0, 255, (50_000, 77), dtype=np.uint8), "row": np.arange(50_000, dtype="i4")},
    "apart": lambda: {"x": RNG.random((20_000, 64), dtype="f4")[:, :40], "row": np.arange(40_000, dtype="i4")[::2]},
    "wide types": lambda: {"x": RNG.random((5_000, 9)), "row": np.arange(5_000, dtype="i4")},
}
CHOICES = {
    "select": lambda rows: rows.select(np.arange(100_000) % 2 == 0).shuffle(seed=1),
    "split": lambda rows: rows.split(0.9, 0.1)[0].shuffle(seed=1),
    "consecutive split": lambda rows: rows.split(0.9, 0.1, seed=None)[1],
    "sample": lambda rows: rows.sample(weights=np.arange(100_000)),
    "interleave": lambda rows: fb.interleave(rows.shuffle(seed=1), rows.take(9_000), weights=(7, 3)),
    "concat": lambda rows: fb.concat(rows.take(5_000), rows.skip(50_000)).shuffle(seed=1),
    "windows": lambda rows: rows.take(20_000).window(20).shuffle(seed=1),
    "windows in order": lambda rows: rows.take(20_000).window(20, stride=7, horizon=3),
    "windows with gaps": lambda rows: rows.window(20, stride=33).shuffle(seed=1),
    "windows within": lambda rows: rows.take(20_000).window(20, within=np.arange(20_000) // 90).shuffle(seed=1),
}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def framework():
    return ALL[FRAMEWORK]()


def shuffle(data, batch):
    return fb.from_arrays(data).shuffle(seed=1).batch(batch)


def assert_same(framework, pipeline, epochs=2, **options):
    """Assert that every batch on the device equals the host batch."""
    with pipeline.feed(FRAMEWORK, device="cuda", **options) as feed, pipeline.feed("numpy") as host:
        for _ in range(epochs):
            for batch, expected in zip(feed, host, strict=True):
                for name, leaf in expected.items():
                    found = framework.read(batch[name])
                    assert np.array_equal(found, leaf.astype(found.dtype))
        return feed.plan.transport, feed.explain()


@pytest.mark.parametrize("resident", ["never", "always", "auto"])
@pytest.mark.parametrize("rows", ROWS)
def test_every_batch_equals_the_host_batch(framework, rows, resident):
    if FRAMEWORK == "jax" and rows == "wide types":
        pytest.skip("JAX narrows float64; its values then differ from the host's in the last bits")
    transport, _ = assert_same(framework, shuffle(ROWS[rows](), 100), resident=resident, epochs=3)
    assert transport is not None


def test_batches_of_rows_in_order_equal_the_host_batches(framework):
    assert_same(framework, fb.from_arrays(ROWS["large"]()).batch(64), resident="never")
    assert_same(framework, fb.from_arrays(ROWS["small"]()).batch(1000), resident="never")


def test_shards_and_block_shuffles_equal_the_host_batches(framework):
    data = ROWS["small"]()
    assert_same(framework, fb.from_arrays(data).shuffle(seed=3).shard(1, 3).batch(128), resident="never")
    assert_same(framework, fb.from_arrays(data).shuffle(seed=3, block=256).batch(128), resident="never")


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("choice", CHOICES)
def test_chosen_rows_and_windows_equal_the_host_batches(framework, choice, resident):
    pipeline = CHOICES[choice](fb.from_arrays(ROWS["small"]()))
    transport, _ = assert_same(framework, pipeline.batch(128), resident=resident)
    assert transport is not None


@pytest.mark.parametrize("resident", ["never", "always"])
def test_64_bit_numbers_arrive_in_the_frameworks_dtype(framework, resident):
    rows = 4_000
    data = {"x": RNG.normal(size=(rows, 30)), "y": RNG.integers(-(2**62), 2**62, rows), "row": np.arange(float(rows))}
    data["large"] = np.arange(rows * 7_000.0).reshape(rows, 7_000)  # rows so long that they are pulled by DMA
    pipeline = shuffle(data, 250)
    transport, explained = assert_same(framework, pipeline, resident=resident)
    assert transport is not None
    assert ("narrowed" in explained) == (FRAMEWORK == "jax")
    with pipeline.feed(FRAMEWORK, device="cuda") as feed:
        batch = next(feed)
        held = {name: framework.read(leaf).dtype for name, leaf in batch.items()}
        assert held == dict(zip(feed.structure.paths, (spec.dtype for spec in feed.specs), strict=True))


def test_rows_that_cannot_be_pulled_are_staged(framework):
    data = ROWS["small"]()
    transport, explained = assert_same(framework, shuffle(data, 256).map(lambda batch: batch | {"x": batch["x"] * 2}))
    assert transport is None
    assert "page-locked memory: map(" in explained

    def rows():
        yield from ({"x": data["x"][row], "row": data["row"][row]} for row in range(2000))

    assert_same(framework, fb.from_generator(rows).batch(64))
    batches = [{"x": data["x"][at : at + 50], "row": data["row"][at : at + 50]} for at in range(0, 1000, 50)]
    assert_same(framework, fb.from_batches(batches))


def test_maps_in_processes_equal_the_host_batches(framework):
    assert_same(framework, shuffle(ROWS["odd"](), 500).map(halve, where="process"))


def halve(batch):
    return {"x": batch["x"] // 2, "row": batch["row"]}


def test_mapped_files_are_pulled_in_place(framework, tmp_path):
    for number, rows in enumerate((700, 1300)):
        np.save(tmp_path / f"{number}.npy", RNG.random((rows, 100), dtype="f4"))
    spec = {"x": fb.ArraySpec((100,), "float32")}
    pipeline = fb.from_files(str(tmp_path / "*.npy"), spec=spec).shuffle(seed=2).batch(64)
    transport, explained = assert_same(framework, pipeline, resident="never")
    assert transport is not None
    assert "refused" not in explained


def test_a_refused_page_lock_is_reported_and_rows_are_staged(framework, tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(40_000, dtype="f4").reshape(-1, 40))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r+")  # the driver refuses to lock writable mapped files
    _, explained = assert_same(framework, shuffle({"x": mapped}, 50), resident="never", epochs=3)
    assert "page-lock" in explained
    assert "refused" in explained


def test_two_feeds_may_read_overlapping_parts_of_one_array(framework):
    data = ROWS["small"]()
    halves = [{name: leaf[part] for name, leaf in data.items()} for part in (slice(0, 60_000), slice(40_000, None))]
    feeds = [shuffle(half, 200).feed(FRAMEWORK, device="cuda", resident="never") for half in halves]
    for feed in feeds:
        count = 0
        for batch in feed:
            rows = framework.read(batch["row"])
            assert np.array_equal(framework.read(batch["x"]), data["x"][rows])
            count += len(rows)
        assert count == 60_000
    feeds[0].close()
    assert sum(len(framework.read(batch["row"])) for batch in feeds[1]) == 60_000
    feeds[1].close()
    assert_same(framework, shuffle(data, 200), resident="never")


def test_a_state_resumes_inside_an_epoch(framework):
    pipeline = shuffle(ROWS["small"](), 300)
    with pipeline.feed(FRAMEWORK, device="cuda") as feed, pipeline.feed(FRAMEWORK, device="cuda") as other:
        iterator = iter(feed)
        for _ in range(17):
            next(iterator)
        other.load_state_dict(feed.state_dict())
        for left, right in zip(iterator, other, strict=True):
            assert np.array_equal(framework.read(left["row"]), framework.read(right["row"]))


def test_scaling_runs_on_the_device(framework):
    data = {"x": RNG.integers(0, 255, (5_000, 300), dtype=np.uint8), "row": np.arange(5_000, dtype="i4")}
    pipeline = shuffle(data, 100).map(fb.scale({"x": 1 / 255}))
    with pipeline.feed(FRAMEWORK, device="cuda") as feed, pipeline.feed("numpy") as host:
        assert "no more bytes cross" in feed.explain()
        for batch, expected in zip(feed, host, strict=True):
            np.testing.assert_allclose(framework.read(batch["x"]), expected["x"], rtol=1e-6)


def test_a_map_on_the_device_gets_the_frameworks_arrays(framework):
    pipeline = shuffle(ROWS["small"](), 100).map(lambda batch: (batch["x"] * 2, batch["row"]), where="device")
    with pipeline.feed(FRAMEWORK, device="cuda") as feed, shuffle(ROWS["small"](), 100).feed("numpy") as host:
        for (_, row), expected in zip(feed, host, strict=True):
            assert np.array_equal(framework.read(row), expected["row"])


def test_a_device_map_error_has_a_note_and_its_batch_does_not_count(framework):
    def fail(batch):
        raise ZeroDivisionError("on purpose")

    with shuffle(ROWS["odd"](), 100).map(fail, where="device").feed(FRAMEWORK, device="cuda") as feed:
        with pytest.raises(ZeroDivisionError) as caught:
            next(iter(feed))
        assert any("on the device" in note for note in caught.value.__notes__)
        assert feed.state_dict()["position"] == 0


def test_an_array_changed_between_epochs_is_pulled_again(framework):
    data = {"x": np.zeros((4_000, 256), "f4")}
    with fb.from_arrays(data).batch(500).feed(FRAMEWORK, device="cuda", resident="always") as feed:
        for _ in range(30):  # enough epochs to finish the upload
            assert all(not framework.read(batch["x"]).any() for batch in feed)
        data["x"][...] = 1
        assert all(framework.read(batch["x"]).all() for batch in feed)
        assert "no longer" in feed.explain()


def test_some_rows_are_resident_if_not_all_fit(framework):
    data = ROWS["small"]()
    pipeline = shuffle(data, 250)
    transport, explained = assert_same(framework, pipeline, device_bytes="20MB", epochs=4)
    assert 0 < transport.resident_rows < 100_000
    assert "part resident" in explained


def test_a_budget_that_is_too_small_is_refused(framework):
    with pytest.raises(BudgetError, match="device_bytes="):
        shuffle(ROWS["large"](), 256).feed(FRAMEWORK, device="cuda", device_bytes="1MiB")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("resident", ["never", "always"])
def test_no_byte_of_a_live_batch_is_overwritten(framework, resident):
    """Run slow kernels on several streams, keep and drop batches at random, and change some in place."""
    dice = random.Random(5)
    data, kept, before = stamp_rows(60_000), [], framework.errors()
    pipeline = shuffle(data, 97).repeat()
    with pipeline.feed(FRAMEWORK, device="cuda", resident=resident, device_bytes=DEVICE_BYTES[resident]) as feed:
        iterator = iter(feed)
        for _ in range(STRESS_BATCHES // 2):
            stream = dice.randrange(4)
            with framework.use_stream(stream):
                batch = next(iterator)
                if dice.random() < 0.2:
                    framework.delay()
                framework.check(batch)
                if dice.random() < 0.3:
                    kept.append((stream, batch))
                elif dice.random() < 0.3:
                    framework.spoil(batch)
            del batch
            while len(kept) > dice.randrange(30):
                stream, late = kept.pop(dice.randrange(len(kept)))
                # Use the stream that took the batch. On other streams, users must synchronize themselves.
                with framework.use_stream(stream):
                    framework.check(late)
                del late
        kept.clear()
    assert framework.errors() == before


DEVICE_BYTES = {"never": "8MiB", "always": "64MiB"}


def test_the_consumer_may_keep_all_batches(framework):
    pipeline = shuffle(stamp_rows(20_000), 128)
    with pipeline.feed(FRAMEWORK, device="cuda", resident="never") as feed:
        batches = list(feed)
    gc.collect()
    before = framework.errors()
    for batch in batches:
        framework.check(batch)
    assert framework.errors() == before


@pytest.mark.parametrize("resident", ["never", "always"])
def test_augmented_images_equal_those_of_the_host(framework, resident):
    images = {"x": RNG.integers(0, 255, (10_000, 20, 24, 3), dtype=np.uint8), "row": np.arange(10_000, dtype="i4")}
    exact = fb.from_arrays(images).shuffle(seed=1).map(fb.random_resized_crop((16, 18))).map(fb.flip(0.5, 0.5))
    _, text = assert_same(framework, exact.batch(100), resident=resident)
    assert text.count("the device computes pixels") == 2
    jittered = exact.map(fb.color_jitter(0.4, 0.4, 0.4, 0.2)).batch(64)
    with jittered.feed(FRAMEWORK, device="cuda", resident=resident) as feed, jittered.feed("numpy") as host:
        for batch, expected in zip(feed, host, strict=True):
            found = framework.read(batch["x"]).astype(np.int16)
            assert np.abs(found - expected["x"]).max() <= 1


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"))


STRETCH, BOXES = {"size": (112, 128)}, {"resize": fb.random_resized_crop((112, 128)), "seed": 3}


@pytest.mark.parametrize("options", [STRETCH, STRETCH | {"resize": "crop"}, BOXES], ids=["stretch", "crop", "boxes"])
def test_images_that_the_device_decodes_equal_those_of_pillow(framework, photos, options):
    try:
        load_nvjpeg()
    except FrameworkError as error:
        pytest.skip(str(error))
    images, expected = (fb.from_images(photos / "*.jpg", **options, decoder=each) for each in ("auto", "pillow"))
    images, expected = (each.shuffle(seed=1).batch(32) for each in (images, expected))
    with images.feed(FRAMEWORK, device="cuda") as feed, expected.feed("numpy") as host:
        for _ in range(3):
            for batch, expected_batch in zip(feed, host, strict=True):
                differences = np.abs(framework.read(batch["image"]).astype(np.int16) - expected_batch["image"])
                means = differences.mean(axis=(1, 2, 3))
                # The host decodes few images, at a lower resolution, which changes their pixels more.
                assert np.count_nonzero(means > 0.5) <= 4
                assert differences[means <= 0.5].max() <= 3
        counts = feed.stats()["decoded_images"]
        assert counts["device"] >= 3 * 114
        assert counts["host"] * 10 < counts["device"]
        assert "nvjpeg" in feed.explain()


def test_a_process_ends_cleanly_with_live_batches():
    script = (
        "import numpy as np, forebay as fb\n"
        "pipeline = fb.from_arrays(np.zeros((5000, 100), 'f4')).shuffle(seed=0).batch(50)\n"
        f"feed = pipeline.feed({FRAMEWORK!r}, device='cuda')\n"
        "kept = [batch for batch, _ in zip(feed, range(20))]\n"
        "print('kept', len(kept))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip().endswith("kept 20")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(FRAMEWORK != "jax", reason="shardings are objects of JAX")
@pytest.mark.parametrize("resident", ["always", "never"])
def test_a_sharding_of_one_gpu_gets_the_arrays_of_the_device_slots(framework, resident):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    sharding = NamedSharding(jax.make_mesh((1,), ("data",)), PartitionSpec("data"))
    pipeline = shuffle(ROWS["small"](), 512).map(fb.scale({"x": 0.5}))
    with pipeline.feed("jax", device=sharding, resident=resident) as feed, pipeline.feed("numpy") as host:
        for batch, expected in zip(feed, host, strict=True):
            assert batch["x"].sharding == sharding
            for name, leaf in expected.items():
                np.testing.assert_array_equal(framework.read(batch[name]), leaf)
        assert feed.plan.transport is not None
        assert "1 gpu device" in feed.explain()
