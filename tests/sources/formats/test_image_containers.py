"""Images inside tar, Parquet, Arrow, TFRecord, HDF5 and LMDB files give the rows of the image files themselves."""

import contextlib
import gzip
import io
import json
import multiprocessing
import struct
import tarfile

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.sources.formats import tfrecord_files

import forebay as fb
from forebay.errors import BudgetError, ForebayError, SourceError, SpecError
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.image_options import ImageOptions
from forebay.sources.formats.images import ImageColumns, open_labelled_images
from forebay.sources.formats.lmdb_index import scan_values
from forebay.testing.sources import SourceTests

ROWS = 24
NAMES = ("ant", "bee", "cat")
OPTIONS = ImageOptions(channels=3, upright=True)


def make_images(seed=0, rows=ROWS):
    return np.random.default_rng(seed).integers(0, 256, (rows, 5, 7, 3), dtype=np.uint8)


def encode(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def labels_of(rows=ROWS):
    return [number % 3 for number in range(rows)]


def write_tar(path, encoded, labels):
    with tarfile.open(path, "w") as archive:
        for number, (data, label) in enumerate(zip(encoded, labels, strict=True)):
            folder = NAMES[label]
            for extension, content in (("png", data), ("cls", str(label).encode()), ("txt", folder.encode())):
                info = tarfile.TarInfo(f"{folder}/{number:04}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))


def make_table(encoded, labels):
    images = pa.array([{"bytes": data, "path": f"{number}.png"} for number, data in enumerate(encoded)])
    names = pa.array([NAMES[label] for label in labels])
    return pa.table({"id": list(range(len(labels))), "image": images, "label": labels, "name": names})


def write_parquet(path, encoded, labels):
    pq.write_table(make_table(encoded, labels), path, row_group_size=5)


def write_arrow(path, encoded, labels):
    feather.write_feather(make_table(encoded, labels), path, compression="uncompressed", chunksize=5)


def write_compressed_arrow(path, encoded, labels):
    feather.write_feather(make_table(encoded, labels), path, compression="zstd", chunksize=5)


def write_tfrecord(path, encoded, labels):
    records = [
        tfrecord_files.example(
            image=tfrecord_files.raw(data),
            label=tfrecord_files.ints(label),
            name=tfrecord_files.raw(NAMES[label].encode()),
        )
        for data, label in zip(encoded, labels, strict=True)
    ]
    tfrecord_files.write(path, *records)


def write_hdf5(path, encoded, labels):
    with h5py.File(path, "w") as file:
        images = file.create_dataset("image", len(encoded), h5py.vlen_dtype("u1"))
        for number, data in enumerate(encoded):
            images[number] = np.frombuffer(data, "u1")
        file["label"] = labels
        file["name"] = [NAMES[label] for label in labels]


def write_hdf5_matrix(path, encoded, labels):
    longest = max(map(len, encoded))
    with h5py.File(path, "w") as file:
        rows = [np.frombuffer(data.ljust(longest, b"\0"), "u1") for data in encoded]
        file.create_dataset("image", data=np.stack(rows), compression="gzip")
        file["label"] = labels
        file["name"] = [NAMES[label] for label in labels]


def write_lmdb(path, encoded, labels):
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number, (data, label) in enumerate(zip(encoded, labels, strict=True)):
            transaction.put(f"image-{number:09}".encode(), data)
            transaction.put(f"label-{number:09}".encode(), str(label).encode())
            transaction.put(f"name-{number:09}".encode(), NAMES[label].encode())
        transaction.put(b"num-samples", str(len(encoded)).encode())


def open_lmdb(path, **options):
    return lmdb.open(str(path), subdir=False, map_size=1 << 28, lock=False, **options)


# Format: suffix, writer, image column, label column, column of class names.
FORMATS = {
    "tar": (".tar", write_tar, None, "cls", "txt"),
    "parquet": (".parquet", write_parquet, None, "label", "name"),
    "arrow": (".arrow", write_arrow, None, "label", "name"),
    "compressed-arrow": (".arrow", write_compressed_arrow, None, "label", "name"),
    "tfrecord": (".tfrecord", write_tfrecord, None, "label", "name"),
    "hdf5": (".h5", write_hdf5, None, "label", "name"),
    "hdf5-matrix": (".h5", write_hdf5_matrix, None, "label", "name"),
    "lmdb": (".mdb", write_lmdb, "image-", "label-", "name-"),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def write(folder, name, seed=0, stem="images", rows=ROWS):
    """Write a file and return its path and pixels."""
    suffix, writer = FORMATS[name][:2]
    images = make_images(seed, rows)
    writer(folder / f"{stem}{suffix}", [encode(image) for image in images], labels_of(rows))
    return folder / f"{stem}{suffix}", images


def open_format(path, name, label=None, class_names=None):
    return open_labelled_images(path, OPTIONS, ImageColumns(FORMATS[name][2], label, class_names), "pillow")


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


def read_all(source):
    out = [spec.empty(len(source)) for spec in source.specs]
    source.gather(np.arange(len(source)), out)
    return out


@each_format
def test_labels_are_read_with_the_images(tmp_path, name):
    path, images = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][3])
    pixels, labels = read_all(source)
    np.testing.assert_array_equal(pixels, images)
    assert labels.tolist() == labels_of()
    assert source.class_names == ()


@each_format
def test_class_names_are_numbered_in_sorted_order(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][4])
    assert source.class_names == NAMES
    assert read_all(source)[1].tolist() == labels_of()


@each_format
def test_class_names_select_classes(tmp_path, name):
    path, images = write(tmp_path, name)
    source = open_format(path, name, FORMATS[name][4], ["cat", "ant"])
    pixels, labels = read_all(source)
    kept = [number for number, label in enumerate(labels_of()) if label != 1]
    np.testing.assert_array_equal(pixels, images[kept])
    assert labels.tolist() == [{2: 0, 0: 1}[labels_of()[number]] for number in kept]
    assert "images left out" in {decision.name for decision in source.decisions()}


@each_format
def test_several_files_are_one_source_in_random_order(tmp_path, name):
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
def test_an_unknown_column_is_refused_with_the_columns_of_the_file(tmp_path, name):
    path, _ = write(tmp_path, name)
    with pytest.raises(SourceError, match="'nothing'"):
        fb.from_images(path, column="nothing")
    with pytest.raises(SourceError, match="nothing"):
        fb.from_images(path, column=FORMATS[name][2], label="nothing")


@each_format
def test_a_damaged_image_is_named(tmp_path, name):
    suffix, writer, column = FORMATS[name][:3]
    encoded = [encode(image) for image in make_images()]
    encoded[3] = encoded[3][:20].ljust(len(encoded[3]), b"\0")
    path = tmp_path / f"images{suffix}"
    writer(path, encoded, labels_of())
    source = open_labelled_images(path, OPTIONS, ImageColumns(column), "pillow")
    with pytest.raises(SourceError, match=rf"3.*{path.name} cannot be decoded"):
        read_all(source)


def damage(data):
    """Yield the data with a wrong byte, or without its end."""
    random = np.random.default_rng(5)
    for position in random.integers(0, len(data), 60).tolist():
        damaged = bytearray(data)
        damaged[position] ^= int(random.integers(1, 256))
        yield damaged
    for length in np.linspace(0, len(data) - 1, 15).astype(int).tolist():
        yield data[:length]


@each_format
def test_a_damaged_file_gives_rows_or_an_error_of_forebay(tmp_path, name):
    path, images = write(tmp_path, name, rows=6)
    for damaged in damage(path.read_bytes()):
        path.write_bytes(damaged)
        with contextlib.suppress(ForebayError):
            pixels, _ = read_all(open_format(path, name, FORMATS[name][3]))
            assert pixels.shape == images.shape or name in ("tar", "lmdb")  # a tar file may lose a member


@each_format
def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(SourceError):
        read_all(source)


@each_format
def test_a_closed_source_raises(tmp_path, name):
    path, _ = write(tmp_path, name)
    source = open_format(path, name)
    source.close()
    source.close()
    with pytest.raises(SourceError, match="is closed"):
        read_all(source)


def test_row_groups_stay_within_the_budget(tmp_path):
    path, images = write(tmp_path, "parquet", rows=200)
    budget = 8000  # bytes; a row group has about 1,000
    pipeline = fb.from_images(path, label="label", max_held_bytes=budget).shuffle(seed=0).batch(10)
    source = pipeline.source
    for batch in pipeline.feed("numpy"):
        assert len(batch["image"]) == 10
        assert 0 < source.held_nbytes <= budget
    assert source.shuffle_blocks.rows == 5
    assert np.asarray(read_all(source)[0]).tobytes() == images.tobytes()


@pytest.mark.parametrize("label", ["folder", lambda path: path.parent.name])
def test_the_folders_of_members_are_labels(tmp_path, label):
    path, _ = write(tmp_path, "tar")
    assert read_all(open_format(path, "tar", label))[1].tolist() == labels_of()


@pytest.mark.parametrize("name", ["parquet", "tfrecord", "hdf5"])
def test_a_function_of_a_path_is_refused_for_rows_without_a_path(tmp_path, name):
    path, _ = write(tmp_path, name)
    with pytest.raises(SourceError, match="have no path"):
        open_format(path, name, lambda path: 0)


def test_class_names_of_hugging_face_datasets(tmp_path):
    table = make_table([encode(image) for image in make_images()], labels_of())
    features = {"label": {"names": ["x", "y", "z", "unused"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pipeline = fb.from_images(tmp_path / "a.parquet", label="label")
    assert pipeline.class_names == ("x", "y", "z", "unused")
    chosen = fb.from_images(tmp_path / "a.parquet", label="label", class_names=["z"])
    assert next(iter(chosen.batch(8).feed("numpy")))["label"].tolist() == [0] * 8


def test_files_with_other_class_names_are_refused(tmp_path):
    table = make_table([encode(image) for image in make_images()], labels_of())
    for name, names in (("a", ["x", "y", "z"]), ("b", ["y", "x", "z"])):
        metadata = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": names}}}}).encode()}
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match="stores other class names"):
        fb.from_images(tmp_path / "*.parquet", label="label")


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


def test_class_names_need_labels(tmp_path):
    path, _ = write(tmp_path, "tar")
    with pytest.raises(SpecError, match="class_names= needs labels"):
        fb.from_images(path, class_names=["ant"])


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


def test_a_null_image_is_named(tmp_path):
    data = [encode(image) for image in make_images(rows=2)]
    pq.write_table(pa.table({"image": [*data, None]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"row 2 of 'image' in .* is null"):
        list(fb.from_images(tmp_path / "a.parquet").batch(3).feed("numpy"))


def test_an_lmdb_file_with_images_and_labels_needs_the_beginning_of_the_keys(tmp_path):
    path, _ = write(tmp_path, "lmdb")
    message = r"has images, such as the value of b'image-000000000', and other values.*column='image-'"
    with pytest.raises(SourceError, match=message):
        fb.from_images(path, size=(8, 9))


def test_a_large_lmdb_file_has_the_values_of_the_library(tmp_path):
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


def test_lmdb_pages_that_form_a_cycle_are_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number in range(2000):
            transaction.put(f"{number:06}".encode(), b"x" * 100)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        if struct.unpack_from("<H", data, page * 4096 + 10)[0] & 1:  # a branch page: its first child becomes itself
            (node,) = struct.unpack_from("<H", data, page * 4096 + 16)
            struct.pack_into("<H", data, page * 4096 + node, page)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="cannot be read as LMDB"):
        fb.from_images(path)


def test_an_lmdb_file_with_named_databases_is_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path, max_dbs=2) as environment:
        database = environment.open_db(b"inner")
        with environment.begin(write=True) as transaction:
            transaction.put(b"1", b"x", db=database)
    with pytest.raises(SourceError, match="named database"):
        fb.from_images(path)


# Labels


def test_many_labels_are_read(tmp_path):
    rows = 200_000  # a check of all labels for each label would take an hour
    pq.write_table(
        pa.table({"image": [encode(make_images(rows=1)[0])] * rows, "label": range(rows)}), tmp_path / "a.parquet"
    )
    source = fb.from_images(tmp_path / "a.parquet", label="label").source
    assert source.gather_leaves([1], np.asarray([rows - 1]))[0].tolist() == [rows - 1]


@pytest.mark.parametrize("data", [struct.pack("<i", 200), "é".encode("latin-1"), b"", b" \n", b"x" * 2000])
def test_labels_that_are_no_text_are_refused(tmp_path, data):
    image = encode(make_images(rows=1)[0])
    with open_lmdb(tmp_path / "a.mdb") as environment, environment.begin(write=True) as transaction:
        transaction.put(b"image-1", image)
        transaction.put(b"label-1", data)
    tfrecord_files.write(
        tmp_path / "a.tfrecord",
        tfrecord_files.example(image=tfrecord_files.raw(image), label=tfrecord_files.raw(data)),
    )
    for name, column, label in (("a.mdb", "image-", "label-"), ("a.tfrecord", None, "label")):
        with pytest.raises(SourceError, match="which is not a short UTF-8 text"):
            fb.from_images(tmp_path / name, column=column, label=label)


def test_labels_of_all_files_are_numbers_or_class_names(tmp_path):
    images = [encode(image) for image in make_images(rows=4)]
    pq.write_table(pa.table({"image": images[:2], "label": ["1", "2"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": images[2:], "label": ["cat", "1"]}), tmp_path / "b.parquet")
    pipeline = fb.from_images(tmp_path / "*.parquet", label="label")
    assert pipeline.class_names == ("1", "2", "cat")
    assert next(iter(pipeline.batch(4).feed("numpy")))["label"].tolist() == [0, 1, 2, 0]


def test_labels_outside_of_the_stored_names_stay_numbers(tmp_path):
    table = make_table([encode(image) for image in make_images()], [-1] * ROWS)
    metadata = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["x", "y"]}}}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pipeline = fb.from_images(tmp_path / "a.parquet", label="label")
    assert pipeline.class_names == ()
    assert next(iter(pipeline.batch(2).feed("numpy")))["label"].tolist() == [-1, -1]


def test_members_without_a_folder_have_no_folder_label(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        data = encode(make_images(rows=1)[0])
        info = tarfile.TarInfo("1.png")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    with pytest.raises(SourceError, match=r"'1\.png' has no folder in its name"):
        fb.from_images(tmp_path / "a.tar", label="folder")


def test_damaged_numbers_of_a_label_are_an_error_of_forebay(tmp_path):
    record = tfrecord_files.example(
        image=tfrecord_files.raw(encode(make_images(rows=1)[0])),
        label=tfrecord_files.field(3, tfrecord_files.field(1, b"\x80")),
    )
    tfrecord_files.write(tmp_path / "a.tfrecord", record)
    with pytest.raises(SourceError, match=r"record 0 of .* is not a tf\.train\.Example"):
        fb.from_images(tmp_path / "a.tfrecord", label="label")


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


def test_keys_of_metadata_have_no_image(tmp_path):
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


# Memory


def test_row_groups_of_one_row_count_as_held(tmp_path):
    data = [encode(image) for image in make_images(rows=50)]
    pq.write_table(pa.table({"image": data}), tmp_path / "a.parquet", row_group_size=1)
    source = fb.from_images(tmp_path / "a.parquet", max_held_bytes=1000).source
    read_all(source)
    assert 0 < source.held_nbytes <= 1000


def test_a_value_that_is_stored_once_for_many_rows_stays_within_the_budget(tmp_path):
    noise = encode(np.random.default_rng(0).integers(0, 255, (800, 800, 3), dtype=np.uint8))
    pq.write_table(pa.table({"image": [noise] * 100}), tmp_path / "a.parquet", use_dictionary=True)
    assert (tmp_path / "a.parquet").stat().st_size < 2 * len(noise)
    with pytest.raises(BudgetError, match="is repeated data"):
        fb.from_images(tmp_path / "a.parquet", max_held_bytes="64MiB")


def test_a_page_whose_entries_repeat_is_refused(tmp_path):
    path = tmp_path / "a.mdb"
    with open_lmdb(path) as environment, environment.begin(write=True) as transaction:
        for number in range(10):
            transaction.put(f"{number}".encode(), b"x" * 100)
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 4096):
        if struct.unpack_from("<H", data, page * 4096 + 10)[0] & 2:  # a leaf page: all entries become the first
            (node,) = struct.unpack_from("<H", data, page * 4096 + 16)
            for number in range(10):
                struct.pack_into("<H", data, page * 4096 + 16 + 2 * number, node)
    path.write_bytes(data)
    with pytest.raises(SourceError, match="is not in order"):
        fb.from_images(path)


@pytest.mark.parametrize("what", ["a large chunk", "many labels"])
def test_an_hdf5_file_that_claims_much_memory_is_refused(tmp_path, what):
    rows = 2**25
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if what == "a large chunk":
            file.create_dataset("image", (4000, 50_000), "u1", chunks=(4000, 50_000), compression="gzip")
        else:
            file.create_dataset("image", (rows, 2), "u1", chunks=(1024, 2), compression="gzip")
            file.create_dataset("label", (rows,), "i8", chunks=(1024,), compression="gzip")
    with pytest.raises(BudgetError, match="claims"):
        fb.from_images(tmp_path / "a.h5", label=None if what == "a large chunk" else "label", max_held_bytes="64MiB")


@pytest.mark.slow
def test_archives_that_are_decompressed_share_the_budget(tmp_path):
    path, _ = write(tmp_path, "tar")
    (tmp_path / "a.tar").write_bytes(path.read_bytes() + bytes(40 << 20))
    for name in ("a", "b"):
        (tmp_path / f"{name}.tar.gz").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes()))
    assert len(fb.from_images(tmp_path / "a.tar.gz", max_held_bytes="64MiB").source) == ROWS
    with pytest.raises(BudgetError, match="decompressed as a whole"):
        fb.from_images(tmp_path / "*.tar.gz", max_held_bytes="64MiB")


def test_a_forked_process_reads_although_a_thread_held_the_cache(tmp_path):
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
