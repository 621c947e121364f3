"""Feeds that replace a tf.data pipeline keep its rows and its batches."""

import pytest
from tests.doctor.rules.edited_code import code_after

from forebay.doctor.rules.build_edits import build_once
from forebay.doctor.rules.pipeline_edits import feed_of_files, feed_of_rows, feed_of_slices

LOAD = 'def load(path):\n    file = np.load(path)\n    return file["x"], file["y"]\n'
LOOP = "ds = tf.data.Dataset.{}\nfor x, y in ds:\n    train(x, y)\n"
FILES = 'from_tensor_slices(glob("*.npz")).map(load).unbatch()'


@pytest.mark.parametrize(
    ("stages", "is_edited"),
    [
        (".batch(4)", True),
        (".shuffle(9).batch(4).take(3)", True),
        (".filter(keep).batch(4)", False),
        (".repeat().batch(4)", False),
        (".take(3).batch(4)", False),
        (".batch(4, drop_remainder=True)", False),
    ],
)
def test_a_feed_of_files_loses_no_stage(stages, is_edited):
    source = LOAD + LOOP.format(FILES + stages)
    assert bool(code_after(source, 5, feed_of_files, "tensorflow")) == is_edited


@pytest.mark.parametrize(
    ("stages", "is_edited"),
    [
        ("from_generator(make, types).batch(4).take(3)", True),
        ("from_generator(make, types).take(3).batch(4)", False),
        ("from_generator(make, types).batch(4, drop_remainder=True)", False),
        ("from_generator(make, types, args=(1,)).batch(4)", False),
    ],
)
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_feed_of_rows_yields_equal_batches(stages, is_edited, in_batches):
    code = code_after(LOOP.format(stages), 2, feed_of_rows, "tensorflow", in_batches=in_batches)
    assert bool(code) == is_edited


def test_a_pipeline_that_shuffles_batches_gets_no_feed_of_arrays():
    source = "import numpy as np\nx = np.ones(9)\n" + LOOP.format("from_tensor_slices(x).{}")
    assert code_after(source.format("shuffle(9).batch(4)"), 4, feed_of_slices, "tensorflow")
    assert code_after(source.format("batch(4).shuffle(9)"), 4, feed_of_slices, "tensorflow") == ""


def test_an_iterator_is_made_in_each_epoch():
    source = "for epoch in epochs:\n    rows = {}(loader)\n    train(rows)\n"
    assert code_after(source.format("compiled"), 2, build_once)
    assert code_after(source.format("iter"), 2, build_once) == ""
