"""Pipelines and states that cannot be combined are refused, with a reason."""

import numpy as np
import pytest
from tests.pipeline.combined_pipelines import PAIR, ROWS, epoch_of, resume_feed

import forebay as fb
from forebay.errors import PipelineError, SpecError, StateError
from forebay.pipeline.combine import concat, interleave, zip_rows

BASE = interleave(*PAIR, weights=(2, 1))  # other combinations refuse the state of this pipeline


@pytest.mark.parametrize(
    "other",
    [
        interleave(*PAIR, weights=(1, 1)),
        interleave(*PAIR, weights=(2, 1), stop="all"),
        interleave(*PAIR, weights=(2, 1), stop=BASE.order.length),
        interleave(*PAIR, weights=(2, 1), seed=0),
        interleave(*PAIR[::-1], weights=(2, 1)),
        interleave(PAIR[0], PAIR[1].shuffle(seed=0), weights=(2, 1)),
        interleave(PAIR[0], PAIR[1].take(19), weights=(2, 1)),
        concat(*PAIR),
        concat(*PAIR[::-1]),
    ],
)
def test_a_state_of_another_combination_is_refused(other):
    state = BASE.batch(2).feed("numpy").state_dict()
    resume_feed(interleave(*PAIR, weights=(4, 2)).batch(3), state)
    with pytest.raises(StateError, match="another pipeline"):
        other.batch(2).feed("numpy").load_state_dict(state)


@pytest.mark.parametrize("combine", [concat, interleave, zip_rows])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (fb.from_generator(lambda: iter([np.int64(1)])), "is a stream.*Combine the rows inside the generator"),
        (fb.from_batches([np.arange(3)]), "ready-made batches.*Combine the rows in the loader"),
        (ROWS.map(abs), r"map\(abs, rows\).*Call map\(\) after"),
        (ROWS.map(fb.cast("float32")), r"cast\(.*Call map\(\) after"),
        (ROWS.batch(4), r"batch\(4\).*Call batch\(\) after"),
        (ROWS.batch(4).repeat(2), r"batch\(4\).*Call batch\(\) after"),
        (ROWS.shard(0, 2), r"sharded. Call shard\(\) after"),
        (ROWS.shard("auto"), r"sharded. Call shard\(\) after"),
        (np.arange(3), "pipeline 2 is a ndarray. Pass pipelines"),
        ([ROWS, ROWS], r"Remove the brackets: \w+\(\*pipelines\)"),
    ],
)
def test_pipelines_that_cannot_be_combined_are_refused(combine, other, message):
    with pytest.raises(PipelineError, match=message):
        combine(ROWS, other)


@pytest.mark.parametrize("combine", [concat, interleave, zip_rows])
def test_a_call_without_pipelines_is_refused(combine):
    with pytest.raises(PipelineError, match="got no pipeline"):
        combine()


@pytest.mark.parametrize("combine", [concat, interleave])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.arange(3.0), r"'array' is int64\[\] in pipeline 1 and float64\[\] in pipeline 2.*astype\('int64'\)"),
        (np.zeros((3, 2), int), r"int64\[\] in pipeline 1 and int64\[2\]"),
        ({"x": np.arange(3)}, r"array \(a single array\) and pipeline 2 has x \(dict\)"),
    ],
)
def test_rows_of_other_specs_are_refused_with_the_field_and_both_specs(combine, other, message):
    with pytest.raises(SpecError, match=message):
        combine(ROWS, fb.from_arrays(other))


@pytest.mark.parametrize(
    "weights", [(1,), (1, 2, 3), (1, 0), (1, -2), (1, float("nan")), (1, float("inf")), (1, "2"), (1, True), 3, "ab"]
)
def test_weights_that_are_not_one_positive_number_per_pipeline_are_refused(weights):
    with pytest.raises(PipelineError, match="weights="):
        interleave(ROWS, ROWS, weights=weights)


@pytest.mark.parametrize("stop", ["last", 0, -1, 2.5, None, True])
def test_invalid_values_of_stop_are_refused(stop):
    with pytest.raises(PipelineError, match="stop="):
        interleave(ROWS, ROWS, stop=stop)


@pytest.mark.parametrize("seed", ["1", 1.5, True])
def test_seeds_that_are_not_whole_numbers_are_refused(seed):
    with pytest.raises(PipelineError, match="seed="):
        interleave(ROWS, ROWS, seed=seed)


def test_endless_pipelines_are_refused_before_other_pipelines_and_with_stop_all():
    with pytest.raises(PipelineError, match=r"pipeline 1 never ends.*Pass a count"):
        concat(ROWS.repeat(), ROWS)
    with pytest.raises(PipelineError, match=r"pipeline 2 repeats without a count. Leave out"):
        interleave(ROWS, ROWS.repeat(), stop="all")
    assert epoch_of(concat(ROWS, ROWS.repeat()).take(25)) == [*range(10), *range(10), *range(5)]
    assert len(epoch_of(interleave(ROWS, ROWS.repeat(), weights=(1, 4)))) >= 46
    assert len(epoch_of(interleave(ROWS.repeat(), ROWS.repeat()).take(99))) == 99


def test_zip_refuses_other_lengths_orders_and_equal_names():
    with pytest.raises(PipelineError, match=r"pipeline 1 has 10, pipeline 2 has 7. Use take"):
        zip_rows(ROWS, ROWS.take(7))
    with pytest.raises(PipelineError, match="pipeline 2 has endless rows"):
        zip_rows(ROWS, ROWS.repeat())
    with pytest.raises(PipelineError, match=r"different orders \(natural, shuffled\).*or shuffle rows"):
        zip_rows(ROWS, ROWS.shuffle(seed=1))
    with pytest.raises(PipelineError, match="or shuffle rows"):
        zip_rows(ROWS.shuffle(seed=2), ROWS.shuffle(seed=1))
    with pytest.raises(PipelineError, match=r"two fields that are both named 'x'. Rename"):
        zip_rows(fb.from_arrays({"x": np.arange(3)}), fb.from_arrays({"x": np.arange(3)}))


@pytest.mark.parametrize("combine", [concat, interleave, zip_rows])
def test_windows_of_combined_windows_are_refused(combine):
    windows = fb.from_arrays(np.arange(20)).window(3)
    with pytest.raises(PipelineError, match="consecutive rows"):
        combine(windows, windows).window(2)
