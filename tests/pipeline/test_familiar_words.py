"""Words of other loaders work, or raise an error that names the word of Forebay."""

import copy
import inspect
import pickle
import pydoc
import subprocess
import sys

import numpy as np
import pytest
from tests.support.paths import ROOT

import forebay as fb
from forebay.errors import PipelineError, UnknownNameError

X, Y = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(12)
TUPLES = fb.from_arrays((X, Y))
DICTS = fb.from_arrays({"x": X, "y": Y})
ROWS = fb.from_arrays(Y)


def first(pipeline, to="numpy"):
    with pipeline.feed(to, device="cpu") as feed:
        return next(feed)


WORKING = {
    "batch(drop_last=True)": lambda: len(ROWS.batch(5, drop_last=True).feed("numpy")) == 2,
    "batch(batch_size=5)": lambda: ROWS.batch(batch_size=5) == ROWS.batch(5),
    "batch(drop_remainder=True)": lambda: len(ROWS.batch(5, drop_remainder=True).feed("numpy")) == 2,
    "feed('np')": lambda: isinstance(first(ROWS.batch(2), "np"), np.ndarray),
    "repeat().batch()": lambda: len(list(ROWS.repeat(2).batch(5).feed("numpy"))) == 5,
    "repeat().batch() without end": lambda: len(first(ROWS.repeat().batch(30))) == 30,
    "take(3)": lambda: first(ROWS.take(3).batch(8)).tolist() == [0, 1, 2],
    "cache(...)": lambda: first(ROWS.cache("1MB").batch(2)).tolist() == [0, 1],
    "len of rows": lambda: len(ROWS) == 12,
    "len of batches": lambda: len(ROWS.batch(5)) == 3,
    "len of a shard": lambda: len(ROWS.shard(0, 4).batch(2)) == 2,
    "len of ready-made batches": lambda: len(fb.from_batches([X, X])) == 2,
    "a function of a row and rng": lambda: first(ROWS.map(lambda row, rng: row).batch(2)).tolist() == [0, 1],
    "a function with a default": lambda: first(ROWS.map(lambda row, step=1: row + step).batch(2)).tolist() == [1, 2],
    "bool(pipeline)": lambda: bool(ROWS) and bool(fb.from_generator(lambda: iter(Y))),
    "f-string": lambda: "Pipeline" in f"{ROWS}",
}


@pytest.mark.parametrize("word", WORKING)
def test_a_word_of_equal_meaning_works(word):
    assert WORKING[word]()


HINTS = {
    "shuffle(1000)": (lambda: ROWS.shuffle(1000), "shuffle(seed=0)"),
    "shuffle(1000, seed=1)": (lambda: ROWS.shuffle(1000, seed=1), "shuffle(seed=0)"),
    "shuffle(buffer_size=1000)": (lambda: ROWS.shuffle(buffer_size=1000), "shuffle(seed=0)"),
    "prefetch(2)": (lambda: ROWS.prefetch(2), "Leave prefetch() out"),
    "feed.prefetch(2)": (lambda: ROWS.batch(2).feed("numpy").prefetch(2), "Leave prefetch() out"),
    "cache().prefetch()": (lambda: ROWS.cache().prefetch(), "cache('8GB')"),
    "cache(...).prefetch()": (lambda: ROWS.cache("1MB").prefetch(), "Leave prefetch() out"),
    "cache(filename=)": (lambda: ROWS.cache(filename="folder"), "cache('folder')"),
    "from_arrays(x, y)": (lambda: fb.from_arrays(X, Y), "from_arrays((x, y))"),
    "from_arrays(shuffle=)": (lambda: fb.from_arrays(X, shuffle=True), "from_arrays(arrays).shuffle(seed=0)"),
    "from_arrays(batch_size=)": (lambda: fb.from_arrays(X, batch_size=8), "from_arrays(arrays).batch(8)"),
    "sample(num_samples=)": (lambda: ROWS.sample(weights=Y, num_samples=5), "sample(..., rows=5)"),
    "random_split": (lambda: fb.random_split(ROWS, [0.8, 0.2]), "pipeline.split(0.8, 0.2)"),
    "from_tensor_slices": (lambda: fb.from_tensor_slices((X, Y)), "fb.from_arrays((x, y))"),
    "Dataset": (lambda: fb.Dataset, "fb.from_arrays(...)"),
    "Dataset.from_tensor_slices": (lambda: fb.Dataset.from_tensor_slices(X), "fb.from_arrays(...)"),
    "DataLoader": (lambda: fb.DataLoader(X), "fb.from_source(dataset)"),
    "interleave": (lambda: ROWS.interleave(lambda x: x), "fb.interleave(first, second)"),
    "as_numpy_iterator()": (lambda: ROWS.as_numpy_iterator(), "pipeline.feed('numpy')"),
    "feed.as_numpy_iterator()": (lambda: ROWS.batch(2).feed("numpy").as_numpy_iterator(), "pipeline.feed('numpy')"),
    "to('cuda')": (lambda: ROWS.to("cuda"), "device='cuda'"),
    "feed.to('cuda')": (lambda: ROWS.batch(2).feed("numpy").to("cuda"), "device='cuda'"),
    "feed(num_workers=4)": (lambda: ROWS.batch(2).feed("numpy", num_workers=4), "workers=4"),
    "feed('keras', num_workers=4)": (lambda: ROWS.batch(2).feed("keras", num_workers=4), "workers=4"),
    "batch(num_workers=4)": (lambda: ROWS.batch(2, num_workers=4), "workers=4"),
    "map(num_workers=4)": (lambda: ROWS.map(abs, num_workers=4), "workers=4"),
    "map(num_parallel_calls=4)": (lambda: ROWS.map(abs, num_parallel_calls=4), "workers=4"),
    "feed(validation_split=0.1)": (
        lambda: ROWS.batch(2).feed("numpy", validation_split=0.1),
        "train, validation = pipeline.split(0.9, 0.1)",
    ),
    "split(validation_split=0.1)": (lambda: ROWS.split(validation_split=0.1), "pipeline.split(0.9, 0.1)"),
    "split(test_size=0.1)": (lambda: ROWS.split(test_size=0.1), "pipeline.split(0.9, 0.1)"),
    "split(random_state=3)": (lambda: ROWS.split(0.9, 0.1, random_state=3), "split(0.9, 0.1, seed=3)"),
    "sample(class_weight=)": (lambda: DICTS.sample(class_weight={0: 1}), "sample(balance='label')"),
    "feed.backup_and_restore()": (
        lambda: ROWS.batch(2).feed("numpy").backup_and_restore("backup"),
        "pipeline.feed('keras').backup_and_restore('backup')",
    ),
    "feed.cardinality()": (lambda: ROWS.batch(2).feed("numpy").cardinality(), "len(feed)"),
    "feed.element_spec": (lambda: ROWS.batch(2).feed("numpy").element_spec, "feed.specs"),
    "feed(devices=)": (lambda: ROWS.batch(2).feed("numpy", devices="cpu"), "Write device=."),
    "feed(pin_memory=True)": (lambda: ROWS.batch(2).feed("numpy", pin_memory=True), "Leave the argument out"),
    "feed(batch_size=2)": (lambda: ROWS.feed("numpy", batch_size=2), "pipeline.batch(2)"),
    "window(block_size=8)": (lambda: ROWS.window(block_size=8), "Write window(8, horizon=1)"),
    "window(4, shift=2)": (lambda: ROWS.window(4, shift=2), "Write stride=2."),
    "from_dataset(dataset)": (lambda: fb.from_dataset([1, 2]), "fb.from_source(dataset)"),
    "pipeline.state_dict()": (lambda: ROWS.batch(2).state_dict(), "feed.state_dict()"),
    "pipeline.load_state_dict(state)": (lambda: ROWS.batch(2).load_state_dict({}), "feed.load_state_dict(state)"),
    "pipeline.resume(state)": (lambda: ROWS.batch(2).resume({}), "feed.load_state_dict(state)"),
    "feed.resume(state)": (lambda: ROWS.batch(2).feed("numpy").resume({}), "feed.load_state_dict(state)"),
    "pipeline.explain()": (lambda: ROWS.batch(2).explain(), "pipeline.feed('torch').explain()"),
    "pipeline.plan": (lambda: ROWS.batch(2).plan, "pipeline.feed('torch').explain()"),
    "pipeline.stats()": (lambda: ROWS.batch(2).stats(), "feed.stats()"),
    "map of a row and a key": (
        lambda: DICTS.map(lambda row, key: row),
        "For random numbers, name the parameter rng.",
    ),
    "map of two arguments and rng": (
        lambda: TUPLES.map(lambda x, y, rng: (x, y)),
        "lambda row, rng: function(row[0], row[1], rng=rng)",
    ),
    "map of two arguments": (lambda: TUPLES.map(lambda x, y: (x, y)), "function(row[0], row[1])"),
    "map of two fields": (lambda: DICTS.map(lambda x, y: (x, y)), "function(row['x'], row['y'])"),
    "map of two arguments of batches": (lambda: TUPLES.batch(2).map(lambda x, y: x), "function(batch[0], batch[1])"),
    "for batch in pipeline": (lambda: list(ROWS.batch(2)), "Iterate pipeline.feed('numpy')"),
    "pipeline[0]": (lambda: ROWS[0], "pipeline.feed('loader')"),
    "feed[0]": (lambda: ROWS.batch(2).feed("numpy")[0], "pipeline.feed('loader')"),
    "from_generator(output_signature=)": (lambda: fb.from_generator(iter, output_signature=1), "spec=fb.ArraySpec"),
    "from_images(image_size=)": (lambda: fb.from_images("*.jpg", image_size=(8, 8)), "Write size=(height, width)"),
    "from_images(labels=)": (lambda: fb.from_images("*.jpg", labels="inferred"), "Write label='folder'"),
    "from_images(label='inferred')": (lambda: fb.from_images("*.jpg", label="inferred"), "Write label='folder'"),
    "unbatch()": (lambda: ROWS.batch(2).unbatch(), "before batch()"),
    "enumerate()": (lambda: ROWS.enumerate(), "fb.from_arrays({'row': np.arange(len(x)), 'x': x})"),
    "apply(...)": (lambda: ROWS.apply(abs), "function(pipeline)"),
    "random_map": (lambda: ROWS.random_map(abs), "map(lambda row, rng: ...)"),
    "to_iter_dataset()": (lambda: ROWS.batch(2).to_iter_dataset(), "pipeline.feed('jax')"),
    "mp_prefetch": (lambda: ROWS.mp_prefetch(2), "map(function, where='process', workers=4)"),
    "MapDataset": (lambda: fb.MapDataset.source(X), "fb.from_source(source)"),
    "IterDataset": (lambda: fb.IterDataset, "fb.from_generator(function)"),
    "feed.get_state()": (lambda: ROWS.batch(2).feed("numpy").get_state(), "feed.state_dict()"),
    "feed.set_state(state)": (lambda: ROWS.batch(2).feed("numpy").set_state({}), "feed.load_state_dict(state)"),
    "pipeline.get_state()": (lambda: ROWS.batch(2).get_state(), "feed.state_dict()"),
    "pipeline[:100]": (
        lambda: ROWS[:100],
        "got [:100]. Write pipeline.take(100) or pipeline.select(",
    ),
    "pipeline[5:20:2]": (lambda: ROWS[5:20:2], "got [5:20:2]. Write pipeline.select(slice(5, 20, 2))"),
    "feed[5:]": (lambda: ROWS.batch(2).feed("numpy")[5:], ".select(slice(5, None, None)) before batch() and feed()"),
    "image_dataset_from_directory": (lambda: fb.image_dataset_from_directory("images"), "fb.from_images("),
    "timeseries_dataset_from_array": (lambda: fb.timeseries_dataset_from_array(X), ".window(length"),
    "pipeline.validation_split(0.1)": (lambda: ROWS.validation_split(0.1), "pipeline.split(0.9, 0.1)"),
    "pipeline.backup_and_restore()": (
        lambda: ROWS.batch(2).backup_and_restore("backup"),
        "feed = pipeline.feed('keras'), then feed.backup_and_restore('backup')",
    ),
    "feed.feed('keras')": (lambda: ROWS.batch(2).feed("numpy").feed("keras"), "Call feed() once"),
    "from_arrays(x=x, y=y)": (lambda: fb.from_arrays(x=X, y=Y), 'from_arrays({"x": x, "y": y})'),
    "feed(sharding=)": (lambda: ROWS.batch(2).feed("jax", sharding=1), "feed('jax', device=sharding)"),
    "readback.get()": (lambda: fb.Readback().get(), "readback.ready()"),
    "batch(shuffle=True)": (lambda: ROWS.batch(2, shuffle=True), "pipeline.shuffle(seed=0).batch(32)"),
    "feed(transform=)": (lambda: ROWS.batch(2).feed("torch", transform=None), "pipeline.map(function).batch(32)"),
    "fb.ImageFolder": (lambda: fb.ImageFolder("images"), "fb.from_images("),
    "split(lengths=)": (lambda: ROWS.split(lengths=[9, 3]), "split(900, 100)"),
    "split([9, 3])": (lambda: ROWS.split([9, 3]), "write split(9, 3), without brackets"),
    "split((0.9, 0.1))": (lambda: ROWS.split((0.9, 0.1)), "write split(0.9, 0.1), without brackets"),
    "both words": (lambda: ROWS.batch(5, drop_last=True, drop_remainder=True), "Pass one of them"),
}


@pytest.mark.parametrize("word", HINTS)
def test_another_word_raises_an_error_that_names_the_word_of_forebay(word):
    call, advice = HINTS[word]
    with pytest.raises(PipelineError) as caught:
        call()
    assert advice in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("words", [("size", "shift"), ("shift", "size")])
def test_of_several_other_words_the_error_names_the_first(words):
    with pytest.raises(PipelineError, match=rf"window\({words[0]}=3\)"):
        fb.from_arrays(np.arange(9)).window(**dict.fromkeys(words, 3))


WITHOUT_LENGTH = {
    "a stream": fb.from_generator(lambda: iter(Y)).batch(2),
    "repeat()": ROWS.repeat().batch(2),
    "shard('auto')": ROWS.shard("auto").batch(2),
}


@pytest.mark.parametrize("case", WITHOUT_LENGTH)
def test_a_pipeline_without_a_known_length_raises_type_error(case):
    with pytest.raises(TypeError, match="no length"):
        len(WITHOUT_LENGTH[case])


def test_unknown_words_raise_the_errors_of_python():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        ROWS.batch(2, colour=1)
    with pytest.raises(AttributeError, match="'Pipeline' object has no attribute 'colour'"):
        ROWS.colour  # noqa: B018
    with pytest.raises(AttributeError, match="module 'forebay' has no attribute 'colour'"):
        fb.colour  # noqa: B018


@pytest.mark.parametrize(
    ("owner", "name", "nearest"),
    [
        (ROWS, "shufle", "shuffle"),
        (ROWS, "bacth", "batch"),
        (fb, "from_array", "from_arrays"),
        (fb, "normalise", "normalize"),
        (ROWS.batch(2).feed("numpy"), "state_dic", "state_dict"),
    ],
)
def test_a_misspelled_name_raises_an_error_with_the_nearest_name(owner, name, nearest):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Did you mean '{nearest}'") as caught:
        getattr(owner, name)
    assert str(caught.value).count("Did you mean") == 1


MISSPELLED = {
    "batch": (lambda: ROWS.batch(2, drop_reminder=True), r"Pipeline\.batch\(\).*Did you mean 'drop_remainder'\?"),
    "shuffle": (lambda: ROWS.shuffle(sed=0), r"Pipeline\.shuffle\(\).*Did you mean 'seed'\?"),
    "sample": (lambda: ROWS.sample(weight=[1]), r"Pipeline\.sample\(\).*Did you mean 'weights'\?"),
    "window": (lambda: ROWS.window(2, strides=1), r"Pipeline\.window\(\).*Did you mean 'stride'\?"),
    "from_arrays": (lambda: fb.from_arrays(tre=X), r"from_arrays\(\).*Did you mean 'tree'\?"),
    "from_ragged": (lambda: fb.from_ragged(X, offset=Y), r"from_ragged\(\).*Did you mean 'offsets'\?"),
    "too many": (lambda: ROWS.batch(2, 3), r"Pipeline\.batch\(\) takes from 1 to 2 positional arguments"),
}


@pytest.mark.parametrize("method", MISSPELLED)
def test_a_misspelled_argument_raises_an_error_with_the_public_name_and_the_nearest_argument(method):
    call, words = MISSPELLED[method]
    with pytest.raises(TypeError, match=words):
        call()


def test_the_seed_of_a_pipeline_is_a_plain_number_for_other_code():
    pipeline = ROWS.shuffle(seed=7).map(lambda row, rng: row)
    assert pipeline.seed == 7
    assert type(pipeline.seed) is type(pipeline.transforms[0].seed) is int


def test_a_value_that_is_no_seed_is_shown_on_one_line():
    with pytest.raises(PipelineError, match="pass a whole number") as caught:
        ROWS.shuffle(seed=np.arange(200).reshape(20, 10))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_key_of_jax_as_a_seed_raises_an_error_that_asks_for_a_number():
    pytest.importorskip("jax")
    script = """
import jax
import numpy as np
import forebay as fb

rows = fb.from_arrays(np.arange(12))
calls = {
    "Write shuffle(seed=0).": [
        lambda: rows.shuffle(jax.random.PRNGKey(0)),
        lambda: rows.shuffle(jax.random.key(0)),
        lambda: rows.shuffle(seed=jax.random.PRNGKey(0)),
        lambda: rows.shuffle(seed=jax.random.key(0)),
    ],
    "Write split(..., seed=0).": [lambda: rows.split(0.5, 0.5, seed=jax.random.key(0))],
    "Write map(..., seed=0).": [lambda: rows.map(abs, seed=jax.random.key(0))],
}
for advice, functions in calls.items():
    for function in functions:
        try:
            function()
        except fb.ForebayError as error:
            assert str(error).endswith("a seed is a whole number, not a key of jax.random. " + advice), error
        else:
            raise AssertionError("no error")
assert rows.shuffle(seed=jax.numpy.arange(3)[2]).seed == 2
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_methods_keep_their_signatures_for_help():
    assert list(inspect.signature(fb.Pipeline.take).parameters) == ["self", "count"]
    assert "count" in pydoc.render_doc(fb.Pipeline.take)
    assert "label" in inspect.signature(fb.from_images).parameters


def test_methods_can_be_pickled():
    assert pickle.loads(pickle.dumps(fb.Pipeline.take)) is fb.Pipeline.take


def test_hinted_names_are_not_attributes():
    assert not hasattr(ROWS, "prefetch")
    assert not hasattr(fb, "Dataset")
    assert "Dataset" not in dir(fb)
    assert "prefetch" not in dir(ROWS)
    with pytest.raises(UnknownNameError):
        ROWS.prefetch  # noqa: B018


def test_pipelines_can_still_be_copied_and_pickled():
    pipeline = ROWS.shuffle(seed=1).batch(4)
    for other in (copy.copy(pipeline), copy.deepcopy(pipeline), pickle.loads(pickle.dumps(pipeline))):
        assert first(other).tolist() == first(pipeline).tolist()


@pytest.mark.slow
def test_a_loader_of_pytorch_gives_a_hint():
    pytest.importorskip("torch")
    script = """
import numpy as np
import torch
import forebay as fb

pipeline = fb.from_arrays((np.zeros((8, 2), np.float32), np.zeros(8, np.float32))).batch(4)
assert isinstance(next(pipeline.feed("pytorch", device="cpu"))[0], torch.Tensor)
for dataset in (pipeline, pipeline.feed("torch", device="cpu")):
    try:
        next(iter(torch.utils.data.DataLoader(dataset)))
    except ValueError as error:
        assert "feed('loader')" in str(error), error
    else:
        raise AssertionError("no error")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
