"""Rows of S3 objects equal the stored arrays, also after network faults."""

import io

import numpy as np
import pytest
from aiobotocore.session import AioSession
from tests.sources.objects.conftest import KEY, SECRET, npy_bytes
from tests.sources.objects.faulty_proxy import CUT, FLIP, RESET, SHORT, STALL, refuse

import forebay as fb
from forebay.errors import BudgetError, SourceChangedError, SourceError, SpecError, StoreError
from forebay.sources.open_paths import open_paths
from forebay.testing.sources import assert_rows

IMAGES = np.random.default_rng(0).integers(0, 255, (300, 64, 512), dtype="u1")  # 9.8 MB: two blocks
SMALL = np.arange(60.0).reshape(20, 3)
BUSY = refuse(503, "SlowDown")


def npz_bytes(tree):
    file = io.BytesIO()
    np.savez(file, **tree)
    return file.getvalue()


def open_source(bucket, pattern, **options):
    return open_paths(bucket.url(pattern), storage_options=bucket.options, **options)


@pytest.fixture(scope="module")
def images(client):
    """An object that all tests share. Tests that change it use `own_images`."""
    client.create_bucket(Bucket="shared")
    client.put_object(Bucket="shared", Key="images.npy", Body=npy_bytes(IMAGES))
    return "s3://shared/images.npy"


@pytest.fixture
def own_images(bucket):
    return bucket.put_npy("images.npy", IMAGES)


def feed_of(bucket, url, **options):
    return fb.from_files(url, storage_options=bucket.options, **options)


def all_rows(pipeline):
    with pipeline.batch(64).feed("numpy") as feed:
        return np.concatenate([np.array(batch) for batch in feed]), feed.stats()["source"], feed.explain()


def test_rows_in_order_equal_the_array(bucket, images):
    rows, counts, _ = all_rows(feed_of(bucket, images))
    assert (rows == IMAGES).all()
    assert counts["retries"] == 0


def test_a_session_object_of_the_user_is_used(bucket, images):
    own = {**bucket.options, "session": AioSession()}
    rows, counts, _ = all_rows(fb.from_files(images, storage_options=own))
    assert (rows == IMAGES).all()
    assert counts["retries"] == 0


def test_uncompressed_npz_members_are_the_fields_of_a_row(bucket, tmp_path):
    tree = {"x": np.arange(80, dtype="i2").reshape(40, 2), "y": np.arange(40, dtype="u1")}
    bucket.put("a.npz", npz_bytes({name: leaf[:15] for name, leaf in tree.items()}))
    bucket.put("b.npz", npz_bytes({name: leaf[15:] for name, leaf in tree.items()}))
    rows = np.random.default_rng(0).permutation(40)
    assert_rows(open_source(bucket, "*.npz"), rows, [tree["x"], tree["y"]])


def test_objects_are_in_natural_order(bucket):
    for part in (10, 9, 1):
        bucket.put_npy(f"part{part}.npy", np.full(2, part))
    rows, _, _ = all_rows(feed_of(bucket, bucket.url("part*.npy")))
    assert rows.tolist() == [1, 1, 9, 9, 10, 10]


@pytest.mark.usefixtures("patient")
def test_ranges_are_large_and_requested_once_per_epoch(bucket, images):
    all_rows(feed_of(bucket, images).take(300))
    data = [span for span in bucket.proxy.ranges if span[0] > 0]
    assert {stop - start for start, stop in data} <= {256 * 32768, 44 * 32768}  # a block and the remaining rows
    assert len(set(data)) == 2


def test_scattered_rows_of_large_objects_are_read_alone(bucket, images):
    source = open_paths(images, storage_options=bucket.options, ahead_bytes="16MB")
    assert_rows(source, np.asarray([200, 3, 100]), [IMAGES])
    assert {stop - start for start, stop in bucket.proxy.ranges if start > 0} == {32768}


def test_a_shuffled_epoch_has_every_row_once(bucket, images):
    pipeline = feed_of(bucket, images, ahead_bytes="8MB").shuffle(seed=3)
    rows, _, explained = all_rows(pipeline)
    assert sorted(map(bytes, rows)) == sorted(map(bytes, IMAGES))
    assert "a shuffle uses blocks of 256 rows" in explained


def test_a_resumed_epoch_continues_at_its_saved_position(bucket, images):
    pipeline = feed_of(bucket, images).shuffle(seed=1).batch(50)
    with pipeline.feed("numpy") as feed:
        batches = [np.array(batch) for batch in feed]
    with pipeline.feed("numpy") as feed:
        next(feed)
        state = feed.state_dict()
    with pipeline.feed("numpy") as feed:
        feed.load_state_dict(state)
        assert all((np.array(batch) == right).all() for batch, right in zip(feed, batches[1:], strict=True))


@pytest.mark.parametrize(
    "faults",
    [[BUSY] * 3, [RESET] * 2, [CUT] * 2, [SHORT] * 2, [BUSY, RESET, CUT, SHORT]],
    ids=lambda faults: str(len(faults)),
)
def test_transient_faults_cost_retries_but_no_row(bucket, images, faults):
    pipeline = feed_of(bucket, images)
    bucket.proxy.faults.extend(faults)
    rows, counts, explained = all_rows(pipeline)
    assert (rows == IMAGES).all()
    assert counts["retries"] == len(faults)
    assert f"retries  {len(faults)} " in explained


def test_a_missing_response_is_requested_again(bucket, images):
    options = bucket.options | {"config_kwargs": {"read_timeout": 3}}
    pipeline = fb.from_files(images, storage_options=options, attempts=10)
    bucket.proxy.faults.append(STALL)
    rows, counts, _ = all_rows(pipeline)
    assert (rows == IMAGES).all()
    assert counts["retries"] >= 1


def test_two_feeds_of_one_source_get_the_same_rows(bucket, images):
    pipeline = feed_of(bucket, images).batch(50)
    with pipeline.feed("numpy") as one, pipeline.feed("numpy") as two:
        pairs = [(np.array(left), np.array(right)) for left, right in zip(one, two, strict=True)]
    assert all((left == right).all() for left, right in pairs)
    assert (np.concatenate([left for left, _ in pairs]) == IMAGES).all()


def test_prefetched_ranges_stay_within_the_budget_and_are_released(bucket, images):
    pipeline = feed_of(bucket, images, ahead_bytes="10MB")
    with pipeline.batch(10).feed("numpy") as feed:
        held = [pipeline.source.held_nbytes for _ in feed]
    assert max(held) <= 10_000_000
    assert pipeline.source.held_nbytes == 0


def test_a_whole_epoch_follows_an_epoch_that_was_left_early(bucket, images):
    with feed_of(bucket, images).batch(50).feed("numpy") as feed:
        next(iter(feed))
        assert (np.concatenate([np.array(batch) for batch in feed]) == IMAGES).all()


def test_a_changed_byte_is_detected_by_the_checksum_of_the_store(bucket):
    source = open_paths(bucket.put_npy("small.npy", SMALL), storage_options=bucket.options)
    bucket.proxy.faults.append(FLIP)
    assert_rows(source, slice(0, 20), [SMALL])
    assert source.counters()["retries"] == 1


def test_a_request_to_a_store_that_is_busy_at_first_is_retried(bucket, images):
    bucket.proxy.refusals.extend([BUSY] * 2)
    assert len(feed_of(bucket, images).source) == 300


def test_the_error_names_an_object_that_stays_truncated(bucket, images):
    source = open_paths(images, storage_options=bucket.options, attempts=2)
    bucket.proxy.faults.extend([SHORT] * 8)
    with pytest.raises(
        StoreError, match=r"cannot read bytes 128 to 8388736 of s3://shared/images\.npy: .* or wrong response"
    ):
        source.gather(slice(0, 10), [np.empty((10, 64, 512), "u1")])


def test_the_error_names_an_object_that_changes(bucket, own_images):
    pipeline = feed_of(bucket, own_images)
    bucket.put_npy("images.npy", IMAGES + 1)
    with pytest.raises(SourceChangedError, match=r"images\.npy was replaced or deleted after it was listed"):
        all_rows(pipeline)


def test_a_changed_object_is_refused_when_a_source_is_reopened(bucket, own_images):
    pipeline = feed_of(bucket, own_images)
    source, opening = pipeline.source, pipeline.file_recipe.with_absolute_paths()
    opening.open(len(source), source.specs).close()
    bucket.put_npy("images.npy", IMAGES + 1)
    with pytest.raises(SourceChangedError, match=r"images\.npy was replaced after the feed was made"):
        opening.open(len(source), source.specs)


def test_the_error_names_an_object_that_is_deleted(bucket, own_images):
    pipeline = feed_of(bucket, own_images)
    bucket.client.delete_object(Bucket=bucket.name, Key="images.npy")
    with pytest.raises(SourceChangedError, match=r"images\.npy was replaced or deleted"):
        all_rows(pipeline)


def test_a_truncated_upload_is_refused_with_both_sizes(bucket):
    file = io.BytesIO()
    np.save(file, SMALL)
    with pytest.raises(
        SourceError, match=r"truncated: float64 rows of shape \(20, 3\) need 608 bytes, but the object has 300"
    ):
        open_paths(bucket.put("cut.npy", file.getvalue()[:300]), storage_options=bucket.options)


def test_objects_with_different_rows_are_refused(bucket):
    bucket.put_npy("a.npy", SMALL)
    bucket.put_npy("b.npy", SMALL.astype("f4"))
    with pytest.raises(SpecError, match=r"a\.npy has array float64\[3\] and s3://.*b\.npy has array float32\[3\]"):
        open_source(bucket, "*.npy")


def test_a_missing_bucket_is_reported(bucket):
    with pytest.raises(
        StoreError, match=r"cannot list s3://nowhere-at-all/a\.npy: .*the bucket or object does not exist"
    ):
        open_paths("s3://nowhere-at-all/a.npy", storage_options=bucket.options)


def test_a_glob_without_matches_is_reported(bucket):
    with pytest.raises(SourceError, match="matches no object"):
        open_source(bucket, "*.npy")


def test_denied_access_is_reported_without_credentials(bucket):
    bucket.proxy.refusals.extend([refuse(403, "AccessDenied")] * 9)
    with pytest.raises(StoreError, match="access was denied") as caught:
        open_source(bucket, "*.npy")
    assert not {KEY, SECRET} & set(str(caught.value).split())


def test_expired_credentials_are_reported(bucket):
    bucket.proxy.refusals.extend([refuse(400, "ExpiredToken")] * 9)
    with pytest.raises(StoreError, match="the credentials have expired"):
        open_source(bucket, "*.npy")


def test_an_unreachable_host_is_reported(bucket):
    options = bucket.options | {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"}}
    with pytest.raises(StoreError, match="the store cannot be reached"):
        open_paths(bucket.url("a.npy"), storage_options=options)


def test_a_folder_is_refused_with_a_glob_to_pass(bucket):
    bucket.put_npy("train/a.npy", SMALL)
    with pytest.raises(
        SourceError, match=r"train is a folder\. Pass a glob of its objects, like 's3://.*/train/\*\.npy'"
    ):
        open_source(bucket, "train")


def test_an_unknown_option_is_refused_with_the_known_options(bucket, images):
    with pytest.raises(SourceError, match=r"\.npy files have no option 'members'\. Choose from these options: spec"):
        open_paths(images, storage_options=bucket.options, members=["x"])


def test_a_download_needs_a_cache_folder(bucket):
    bucket.put_npy("a.npy", np.asfortranarray(SMALL))
    with pytest.raises(SourceError, match=r"must be downloaded\. Pass a folder: cache="):
        open_source(bucket, "a.npy")


def test_compressed_members_are_downloaded_once(bucket, tmp_path):
    file = io.BytesIO()
    np.savez_compressed(file, x=SMALL)
    bucket.put("a.npz", file.getvalue())
    assert_rows(open_source(bucket, "a.npz", cache=tmp_path), slice(0, 20), [SMALL])
    requested = len(bucket.proxy.ranges)
    assert_rows(open_source(bucket, "a.npz", cache=tmp_path), slice(0, 20), [SMALL])
    assert len(bucket.proxy.ranges) - requested < requested


def test_the_rows_of_an_object_that_is_listed_four_times_are_repeated(bucket, tmp_path):
    url = bucket.put_npy("a.npy", np.asfortranarray(SMALL))
    source = open_paths([url] * 4, storage_options=bucket.options, cache=tmp_path)
    assert_rows(source, slice(0, 80), [np.concatenate([SMALL] * 4)])


def test_the_version_in_the_url_is_read(bucket):
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    url = bucket.put_npy("a.npy", SMALL)
    older = bucket.client.head_object(Bucket=bucket.name, Key="a.npy")["VersionId"]
    bucket.put_npy("a.npy", SMALL + 1)
    source = open_paths(f"{url}?versionId={older}", storage_options=bucket.options)
    assert_rows(source, slice(0, 20), [SMALL])


def test_a_pipeline_shows_no_credentials(bucket, images):
    shown = repr(feed_of(bucket, images))
    assert images in shown
    assert KEY not in shown
    assert SECRET not in shown


def test_an_array_in_fortran_order_is_downloaded(bucket, tmp_path):
    bucket.put_npy("a.npy", np.asfortranarray(SMALL))
    assert_rows(open_source(bucket, "a.npy", cache=tmp_path), slice(0, 20), [SMALL])


def test_a_download_larger_than_the_budget_is_refused(bucket, tmp_path):
    bucket.put_npy("a.npy", np.asfortranarray(SMALL))
    with pytest.raises(BudgetError, match=r"must be downloaded, and .* already holds 0 B\. .* cache_bytes=100 B"):
        open_source(bucket, "a.npy", cache=tmp_path, cache_bytes=100)
