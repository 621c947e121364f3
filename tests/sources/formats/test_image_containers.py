"""Images inside files of other formats, such as Parquet, give the same rows as image files."""

import io
import multiprocessing
import tarfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.sources.formats import tfrecord_files
from tests.sources.formats.image_container_files import (
    FORMATS,
    ROWS,
    each_format,
    encode,
    make_images,
    open_format,
    open_lmdb,
    read_all,
    write,
)

import forebay as fb
from forebay.errors import SourceError, SpecError
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.lmdb_index import scan_values
from forebay.testing.sources import SourceTests


class _ContainerTests(SourceTests):
    name = ""

    def make_source(self, tmp_path):
        path, images = write(tmp_path, self.name)
        return open_format(path, self.name), {"image": images}


class TestTar(_ContainerTests):
    name = "tar"


class TestParquet(_ContainerTests):
    name = "parquet"


class TestArrow(_ContainerTests):
    name = "arrow"


class TestTfrecord(_ContainerTests):
    name = "tfrecord"


class TestHdf5(_ContainerTests):
    name = "hdf5"


class TestLmdb(_ContainerTests):
    name = "lmdb"


@each_format
def test_several_files_become_one_source_that_can_be_shuffled(tmp_path, name):
    parts = [write(tmp_path, name, seed=number, stem=f"part{number}", rows=7 + number) for number in range(3)]
    images = np.concatenate([pixels for _, pixels in parts])
    pipeline = fb.from_images([path for path, _ in parts], column=FORMATS[name][2], label=FORMATS[name][3])
    received = list(pipeline.shuffle(seed=3).batch(5).feed("numpy"))
    pixels = np.concatenate([batch["image"] for batch in received])
    assert sorted(image.tobytes() for image in pixels) == sorted(image.tobytes() for image in images)


@each_format
def test_a_feed_resumes_in_the_middle_of_an_epoch(tmp_path, name):
    path, _ = write(tmp_path, name)
    pipeline = fb.from_images(path, column=FORMATS[name][2]).shuffle(seed=1).batch(4)
    whole = [batch["image"] for batch in pipeline.feed("numpy")]
    first = pipeline.feed("numpy")
    taken = iter(first)
    next(taken), next(taken)
    state = first.state_dict()
    second = pipeline.feed("numpy")
    second.load_state_dict(state)
    np.testing.assert_array_equal([batch["image"] for batch in second], whole[2:])


@each_format
def test_an_unknown_column_or_label_is_refused_with_its_name(tmp_path, name):
    path, _ = write(tmp_path, name)
    with pytest.raises(SourceError, match="'nothing'"):
        fb.from_images(path, column="nothing")
    with pytest.raises(SourceError, match="nothing"):
        fb.from_images(path, column=FORMATS[name][2], label="nothing")


@each_format
def test_a_closed_source_raises_an_error(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name)
    source.close()
    source.close()
    with pytest.raises(SourceError, match="is closed"):
        read_all(source)


def test_an_lmdb_folder_is_opened(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    path, images = write(tmp_path, "lmdb")
    path.rename(folder / "data.mdb")
    pixels = [batch["image"] for batch in fb.from_images(folder, column="image-").batch(ROWS).feed("numpy")]
    np.testing.assert_array_equal(pixels[0], images)


def test_images_and_containers_do_not_mix(tmp_path):
    path, images = write(tmp_path, "tar")
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    with pytest.raises(SourceError, match="is an image, but other files contain images"):
        fb.from_images([path, tmp_path / "one.png"])
    with pytest.raises(SpecError, match="column='x' is for files that contain images"):
        fb.from_images(tmp_path / "one.png", column="x")


def test_several_columns_of_images_are_refused(tmp_path):
    data = [encode(image) for image in make_images(rows=2)]
    pq.write_table(pa.table({"left": data, "right": data}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"has 2 columns that may hold images.*'left'.*'right'.*column="):
        fb.from_images(tmp_path / "a.parquet")


def test_the_identity_of_rows_depends_on_the_column(tmp_path):
    data = [encode(image) for image in make_images(rows=2)]
    pq.write_table(pa.table({"left": data, "right": data[::-1]}), tmp_path / "a.parquet")
    left, right = (fb.from_images(tmp_path / "a.parquet", column=name).source.identify() for name in ("left", "right"))
    assert left != right


def test_the_identity_of_rows_depends_on_the_images_that_class_names_keep(tmp_path):
    data = [encode(image) for image in make_images(rows=4)]
    table = pa.table({"image": data, "first": ["a", "b", "c", "c"], "last": ["c", "c", "a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    first, last = (
        fb.from_images(tmp_path / "a.parquet", label=name, class_names=["a", "b"]).source for name in ("first", "last")
    )
    assert first.identify() != last.identify()


def test_an_lmdb_file_with_images_and_labels_needs_the_beginning_of_the_keys(tmp_path):
    path, _ = write(tmp_path, "lmdb")
    message = r"has images, such as the value of b'image-000000000', and other values.*column='image-'"
    with pytest.raises(SourceError, match=message):
        fb.from_images(path, size=(8, 9))


def test_all_values_of_a_large_lmdb_file_are_found(tmp_path):
    path, random = tmp_path / "big.mdb", np.random.default_rng(0)
    values = {
        f"{number:0{1 + number % 200}}".encode(): random.bytes(int(random.integers(0, 9000))) for number in range(3000)
    }
    with open_lmdb(path) as environment:
        with environment.begin(write=True) as transaction:
            for key, value in values.items():
                transaction.put(key, value)
        with environment.begin(write=True) as transaction:
            for key in list(values)[::3]:
                transaction.delete(key)
                del values[key]
    file = MappedFile(path)
    found = [(value.key, file.read(value.offset, value.nbytes)) for value in scan_values(file)]
    assert found == sorted(values.items())


def test_an_lmdb_file_with_named_databases_is_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path, max_dbs=2) as environment:
        database = environment.open_db(b"inner")
        with environment.begin(write=True) as transaction:
            transaction.put(b"1", b"x", db=database)
    with pytest.raises(SourceError, match="named database"):
        fb.from_images(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": b"image-"}, "column=b'image-' is not a name"),
        ({"label": 3}, "label=3 is unknown"),
        ({"label": "name-", "column": "image-", "class_names": [["cat"]]}, "is not a list of different names"),
    ],
    ids=["column", "label", "class names"],
)
def test_arguments_of_a_wrong_type_are_refused(tmp_path, options, message):
    path, _ = write(tmp_path, "lmdb")
    with pytest.raises(SpecError, match=message):
        fb.from_images(path, **options)


@pytest.mark.parametrize("kind", ["hdf5", "hdf5-matrix"])
def test_images_with_an_hdf5_filter_without_a_limit_are_refused_with_a_remedy(kind, tmp_path):
    path, _ = write(tmp_path, kind)
    with h5py.File(path, "a") as file:
        image, properties = file["image"], h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(image.shape)
        properties.set_filter(32026, h5py.h5z.FLAG_OPTIONAL, ())  # Blosc2
        h5py.h5d.create(file.id, b"other", image.id.get_type(), h5py.h5s.create_simple(image.shape), properties)
    with pytest.raises(SourceError, match=r"'other' in .* the HDF5 filter 32026, .* Write it with another filter"):
        fb.from_images(path, column="other")


def test_images_in_other_hdf5_files_are_refused_with_a_remedy(tmp_path):
    path, _ = write(tmp_path, "hdf5-matrix")
    with h5py.File(path) as file:
        layout = h5py.VirtualLayout(file["image"].shape, "u1")
        layout[:] = h5py.VirtualSource(file["image"])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("image", layout)
    message = r"'image' in .* is a virtual dataset.*from_images\(\) reads no data in other files\. Copy the dataset"
    with pytest.raises(SourceError, match=message):
        fb.from_images(tmp_path / "virtual.h5", column="image")


def test_entries_with_metadata_are_no_images(tmp_path):
    image = make_images(rows=1)[0]
    with open_lmdb(tmp_path / "a.mdb") as environment, environment.begin(write=True) as transaction:
        transaction.put(b"7", encode(image))
        transaction.put(b"__len__", b"1")
    np.testing.assert_array_equal(read_all(fb.from_images(tmp_path / "a.mdb").source)[0][0], image)


def test_a_text_that_begins_like_an_image_is_no_image(tmp_path):
    record = tfrecord_files.example(
        image=tfrecord_files.raw(encode(make_images(rows=1)[0])), brand=tfrecord_files.raw(b"BMW")
    )
    tfrecord_files.write(tmp_path / "a.tfrecord", record)
    assert len(fb.from_images(tmp_path / "a.tfrecord").source) == 1


def test_an_archive_without_images_among_others_is_left_out(tmp_path):
    path, images = write(tmp_path, "tar")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        info = tarfile.TarInfo("a/1.txt")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"no"))
    np.testing.assert_array_equal(read_all(fb.from_images([tmp_path / "other.tar", path]).source)[0], images)
    with pytest.raises(SourceError, match="has no images"):
        fb.from_images(tmp_path / "other.tar")


def test_a_forked_process_reads_although_a_thread_held_the_lock_of_the_cache(tmp_path):
    path, images = write(tmp_path, "parquet")
    source = open_format(path, "parquet")
    with source._rows._options.cache._lock:
        process = multiprocessing.get_context("fork").Process(target=assert_reads, args=(source, images))
        process.start()
    process.join(60)
    assert process.exitcode == 0


def assert_reads(source, images):
    out = [np.empty((1, 5, 7, 3), "u1")]
    source._decoder.decode("", source._rows.read(3), out[0][0])
    np.testing.assert_array_equal(out[0][0], images[3])
