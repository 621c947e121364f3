"""Edits of the input keep the script's own batch size, order, arguments and file names."""

import numpy as np
import pytest
from tests.doctor.applied_cures import apply_cure

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import format_edits, join_code
from forebay.doctor.rules.input_edits import (
    change_batch_size,
    change_loader,
    copy_without_wait,
    feed_of_batches,
    feed_of_dataset,
    map_elsewhere,
    workers_of_dataset,
)
from forebay.doctor.rules.pipeline_edits import (
    batch_before_map,
    feed_of_files,
    feed_of_rows,
    feed_of_slices,
    map_in_parallel,
    prefetch_dataset,
)


def cured(source, edits):
    """Return the source with the edits in it, without imports of Forebay; None if there are no edits."""
    text = apply_cure(source, format_edits(edits)) if edits else None
    return text and text.replace("import forebay as fb\n", "")


GENERATOR = "def batches(folder='a'):\n    for path in glob(folder):\n        yield np.load(path)['x'], 1\n"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("model.fit(batches(), steps_per_epoch=9)", "fb.from_batches(batches)"),
        ("model.fit(batches('b'), epochs=2)", "fb.from_batches(lambda: batches('b'))"),
        ("model.fit(Sequence(x, 32), epochs=2)", "fb.from_batches(Sequence(x, 32))"),
        ("model.fit(train_ds, validation_data=val_ds)", "fb.from_batches(train_ds)"),
    ],
)
def test_batches_of_a_generator_or_dataset_are_prefetched(line, wanted):
    source = GENERATOR + line
    text = cured(source, feed_of_batches(ScriptCode(source), 4, "keras"))
    assert f'feed = {wanted}.feed("keras")\nmodel.fit(feed' in text
    assert ".batch(" not in text


DATASET = "class Images(keras.utils.PyDataset):\n    def __getitem__(self, i): ...\n"


@pytest.mark.parametrize("fit", ["model.fit(Images(x), epochs=2)", "model.fit(x=Images(x), epochs=2)"])
@pytest.mark.parametrize("end", ["", "    def on_epoch_end(self): ...\n"])
def test_batches_of_a_pydataset_are_shuffled_as_by_fit(fit, end):
    source = DATASET + end + fit
    text = cured(source, feed_of_batches(ScriptCode(source), source.count("\n") + 1, "keras"))
    assert "data = Images(x)\ndef batches():" in text
    assert "in np.random.permutation(len(data)):\n        yield data[int(index)]\n" in text
    assert ("data.on_epoch_end()" in text) is bool(end)
    assert 'feed = fb.from_batches(batches).feed("keras")' in text


def test_batches_of_a_pydataset_keep_their_order_if_fit_keeps_it():
    source = f"{DATASET}made = Images(x)\nmodel.fit(made, shuffle=False)"
    text = cured(source, feed_of_batches(ScriptCode(source), 4, "keras"))
    assert 'feed = fb.from_batches(made).feed("keras")\nmodel.fit(feed, shuffle=False)' in text


def test_a_loop_over_a_loader_iterates_the_feed_and_keeps_its_names():
    source = "for epoch in range(3):\n    for step, (x, y) in enumerate(tqdm(loader)):\n        x = x.to(device)"
    text = cured(source, feed_of_batches(ScriptCode(source), 2, "torch"))
    assert text.startswith('feed = fb.from_batches(loader).feed("torch")\nfor epoch in range(3):')
    assert "for step, (x, y) in enumerate(tqdm(feed)):" in text


def test_a_loader_that_each_epoch_makes_is_not_replaced():
    source = "for epoch in range(3):\n    loader = make(epoch)\n    for x in loader:\n        train(x)"
    assert feed_of_batches(ScriptCode(source), 3, "torch") == []


def test_a_dataset_keeps_the_batch_size_and_the_order_of_its_loader():
    source = (
        "loader = DataLoader(images, batch_size=bs, shuffle=True, drop_last=True)\nfor x, y in loader:\n    x.to(0)"
    )
    text = cured(source, feed_of_dataset(ScriptCode(source), 2))
    assert 'feed = fb.from_source(images).shuffle(seed=0).batch(bs, drop_remainder=True).feed("torch")' in text


EPOCHS = """loader = DataLoader(make(), batch_size=2)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        train(x, y)
"""


def test_a_feed_of_rows_that_are_made_once_gives_the_batches_of_the_loader():
    text = apply_cure(EPOCHS, format_edits(feed_of_dataset(ScriptCode(EPOCHS), 3, stored_rows="# once")))
    made, batches = [], []

    def make():
        made.append(1)
        return [(np.full(3, row, "float32"), row) for row in range(4)]

    names = {"make": make, "DataLoader": lambda *args, **options: None, "train": lambda *batch: batches.append(batch)}
    exec(text.replace('feed("torch", device="cpu")', 'feed("numpy")'), names)
    epoch = [([0.0, 1.0], [0, 1]), ([2.0, 3.0], [2, 3])]
    assert [(x[:, 0].tolist(), y.tolist()) for x, y in batches] == epoch * 2
    assert len(made) == 2  # the loader of the script stays


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(x, y)", "batch"),
        ("i, (x, y) in enumerate(loader)", "i, batch in tqdm(enumerate(loader))"),
        ("(x, y)", "((x, z), y)"),
        ("batch_size=2", "batch_size=1"),
        (", batch_size=2", ""),
        ("for epoch in range(2):", "def train_epoch():"),
        ("    for i", "    data = folds[epoch]\n    loader = DataLoader(data, batch_size=2)\n    for i"),
    ],
)
def test_rows_that_the_loop_cannot_take_from_arrays_are_not_made_once(old, new):
    source = EPOCHS.replace(old, new).replace(
        "enumerate(loader):", "enumerate(loader)):" if "tqdm" in new else "enumerate(loader):"
    )
    number = next(number for number, line in enumerate(source.splitlines(), 1) if "enumerate" in line)
    assert feed_of_dataset(ScriptCode(source), number, stored_rows="# once") == []


@pytest.mark.parametrize(
    "argument",
    [
        "sampler=s",
        "32, False, s",
        "32, False, None, None, 0, pad, True",
        "collate_fn=pad",
        "batch_sampler=b",
        "**options",
        "batch_size=None",
    ],
)
def test_a_loader_with_its_own_sampler_or_collation_is_not_replaced(argument):
    source = f"for x in DataLoader(images, {argument}):\n    train(x)"
    assert feed_of_dataset(ScriptCode(source), 1) == []


def test_a_loader_gets_only_the_settings_that_it_lacks():
    source = "loader = DataLoader(\n    rows, 32, shuffle=True, num_workers=0\n)\nfor x in loader:\n    train(x)"
    code = ScriptCode(source)
    assert cured(source, change_loader(code, 4, num_workers="4")).startswith(
        "loader = DataLoader(\n    rows, 32, shuffle=True, num_workers=4\n)"
    )
    assert change_loader(code, 4, num_workers="0") == []
    assert change_loader(ScriptCode("loader = make()"), 1, num_workers="4") == []


def test_a_method_finds_the_function_that_seeds_its_workers():
    source = "class Data:\n    def loader(self):\n        return DataLoader(self.rows, batch_size=4)\n"
    text = cured(source, change_loader(ScriptCode(source), 3, ["rng: Random"], num_workers="2"))
    assert text.index("\ndef seed_worker(worker):") < text.index("class Data:")
    assert "        return DataLoader(self.rows, batch_size=4, num_workers=2, worker_init_fn=seed_worker)" in text


def test_copies_that_do_not_block_stay_as_they_are():
    source = "x, y = x.to(d, non_blocking=True), y.cuda()"
    assert cured(source, copy_without_wait(ScriptCode(source), 1)).endswith("y.cuda(non_blocking=True)")
    unchanged = "x = x.to(d, non_blocking=True)"
    assert copy_without_wait(ScriptCode(unchanged), 1) == []


def test_a_py_dataset_gets_workers():
    source = "train = Frames(paths)\nmodel.fit(train, epochs=2)"
    text = cured(source, workers_of_dataset(ScriptCode(source), 2, 4))
    assert "train.workers, train.use_multiprocessing = 4, True\nmodel.fit(train, epochs=2)" in text


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("BATCH = 2\nfor x in data.batch(BATCH):\n    f(x)", "BATCH = 16"),
        ("model.fit(x, y, batch_size=2)", "batch_size=16"),
        ("a = DataLoader(r, batch_size=2)\nb = DataLoader(r, batch_size=2)", None),
        ("model.fit(x, y)", None),
    ],
)
def test_the_batch_size_changes_where_the_script_sets_it(source, wanted):
    text = cured(source, change_batch_size(ScriptCode(source), 2, 16))
    assert (text is None) if wanted is None else (wanted in text)


CHAIN = "ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(999).map(parse).batch(32)\n"


def test_a_prefetch_is_added_to_the_chain_as_written():
    source = f"import tensorflow as tf\n{CHAIN}model.fit(ds, epochs=3)"
    text = cured(source, prefetch_dataset(ScriptCode(source), 3))
    assert text.endswith("model.fit(ds.prefetch(tf.data.AUTOTUNE), epochs=3)")


def test_a_chain_with_a_prefetch_gets_no_second_prefetch():
    source = f"{CHAIN.rstrip()}.prefetch(1)\nfor a, b in ds:\n    f(a)"
    assert prefetch_dataset(ScriptCode(source), 2) == []


def test_a_map_that_becomes_parallel_keeps_its_function():
    source = f"import tensorflow as tf\n{CHAIN}model.fit(ds)"
    text = cured(source, map_in_parallel(ScriptCode(source), 2, 3))
    assert ".map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(32)" in text
    assert "model.fit(ds.prefetch(tf.data.AUTOTUNE))" in text


def test_a_chain_with_a_map_is_no_feed_of_its_arrays():
    assert feed_of_slices(ScriptCode(f"x = np.ones(3)\ny = x\n{CHAIN}model.fit(ds)"), 4, "keras") == []


def test_a_plain_chain_becomes_a_feed_with_the_same_batches():
    chain = CHAIN.replace(".map(parse)", "").replace("batch(32)", "batch(32, drop_remainder=True)")
    source = f"x = np.ones(3)\ny = x + 1\n{chain}model.fit(ds)"
    text = cured(source, feed_of_slices(ScriptCode(source), 4, "keras"))
    assert 'fb.from_arrays((x, y)).shuffle(seed=0).batch(32, drop_remainder=True).feed("keras")' in text


ROWS = "def rows():\n    yield x, 1\nds = tf.data.Dataset.from_generator(rows, output_signature=s).batch(8)\n"


@pytest.mark.parametrize(
    ("in_batches", "wanted"), [(False, "fb.from_generator(rows).batch(8)"), (True, "islice(source, 8)")]
)
def test_a_generator_of_rows_keeps_its_batch_size(in_batches, wanted):
    source = f"{ROWS}for a, b in ds.take(3):\n    train(a)"
    text = cured(source, feed_of_rows(ScriptCode(source), 4, "tensorflow", in_batches=in_batches))
    assert wanted in text
    assert ".take(3).feed" in text
    compile(text, "cured", "exec")


def test_codes_for_the_same_place_are_joined():
    joined = join_code("# before line 3:\na = 1\n# remove line 4", "# before line 3:\nb = 2", "")
    assert joined == "# before line 3:\na = 1\nb = 2\n# remove line 4"


FILES = """import tensorflow as tf
def read(path):
    with np.load(path) as file:
        return file["x"], file["y"]
paths = tf.data.Dataset.from_tensor_slices(sorted(glob("data/*.npz")))
rows = paths.map(lambda path: tf.py_function(read, [path], [tf.float32, tf.int32]))
for a, b in rows.unbatch().shuffle(99).batch(16).prefetch(1):
    train(a, b)
"""


def test_a_feed_reads_the_files_that_a_map_loads():
    text = cured(FILES, feed_of_files(ScriptCode(FILES), 7, "tensorflow"))
    assert "fb.from_files(sorted(glob(\"data/*.npz\")), members=['x', 'y']).shuffle(seed=0).batch(16)" in text
    assert 'for batch in feed:\n    a, b = batch["x"], batch["y"]\n    train(a, b)' in text
    assert feed_of_files(ScriptCode(FILES.replace('file["y"]', "0")), 7, "tensorflow") == []


@pytest.mark.parametrize(("guard", "comments"), [("", 1), ('if __name__ == "__main__":\n    main()\n', 0)])
def test_worker_processes_need_the_main_guard(guard, comments):
    source = f'import forebay as fb\nfeed = fb.from_arrays(x).batch(4).map(prepare).feed("torch")\n{guard}'
    code = format_edits(map_elsewhere(ScriptCode(source), "process"))
    assert '.map(prepare, where="process").feed("torch")' in code
    assert code.count("Worker processes import this script") == comments


def test_a_map_that_already_runs_in_processes_is_not_changed():
    source = 'import forebay as fb\nfeed = fb.from_arrays(x).map(f, where="process").batch(4).feed("torch")'
    assert map_elsewhere(ScriptCode(source), "process") == []


ROW_MAP = """
import tensorflow as tf
def prepare(x, y):
    return tf.cast(x, tf.float32) / 255.0, tf.cast(y, tf.int64)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).map(prepare).shuffle(1000).batch(100)
for x, y in dataset:
    train(x, y)
"""


def test_a_map_that_calculates_moves_behind_the_batch():
    text = cured(ROW_MAP, batch_before_map(ScriptCode(ROW_MAP), 6))
    assert "from_tensor_slices((x, y)).shuffle(1000).batch(100).map(prepare)" in text


@pytest.mark.parametrize("body", ["tf.reshape(x, [784]), y", "tf.io.decode_jpeg(x), y", "x[0], y"])
def test_a_map_of_single_rows_stays_before_the_batch(body):
    source = ROW_MAP.replace("tf.cast(x, tf.float32) / 255.0, tf.cast(y, tf.int64)", body)
    assert batch_before_map(ScriptCode(source), 6) == []


def test_a_map_behind_the_batch_stays_there():
    source = ROW_MAP.replace(".map(prepare).shuffle(1000).batch(100)", ".batch(100).map(prepare)")
    assert batch_before_map(ScriptCode(source), 6) == []
