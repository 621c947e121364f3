"""The warning about integers that do not fit into the framework's dtype."""

import numpy as np
import pytest

import forebay as fb
from forebay.adapters.handoff.numpy import NumpyHandOff
from forebay.engines.host import HostEngine
from forebay.pipeline import narrowing
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.request import resolve_request
from forebay.pipeline.target import Target

LARGE = np.arange(1000) + 2**40
SMALL = np.arange(1000)


class NarrowingHandOff(NumpyHandOff):
    """Narrows 64-bit integers to 32 bits, as JAX does."""

    def framework_dtype(self, dtype):
        return np.dtype(dtype.str.replace("i8", "i4").replace("u8", "u4"))


@pytest.fixture(autouse=True)
def narrowing_target(monkeypatch):
    target = Target(HostEngine(), NarrowingHandOff())
    monkeypatch.setattr("forebay.pipeline.request.resolve_target", lambda device, to: target)


def start(pipeline):
    return resolve_request(pipeline.batch(8), FeedOptions())


WARNED = {
    "an array": lambda: fb.from_arrays(LARGE),
    "a negative number": lambda: fb.from_arrays(-LARGE),
    "unsigned numbers": lambda: fb.from_arrays(LARGE.astype("uint64")),
    "the last row": lambda: fb.from_arrays(np.append(SMALL, 2**31)),
    "a field": lambda: fb.from_arrays({"x": SMALL, "y": LARGE}),
    "parts": lambda: fb.concat(fb.from_arrays(LARGE), fb.from_arrays(SMALL)),
    "the result of a map": lambda: fb.from_arrays(SMALL).map(lambda x: x + 2**40),
    "a stream with a map": lambda: fb.from_generator(lambda: iter(SMALL)).map(lambda x: x + 2**40),
}


@pytest.mark.parametrize("case", WARNED)
def test_values_that_do_not_fit_cause_one_warning(case):
    with pytest.warns(UserWarning, match=r"wraps around.*jax_enable_x64.*fb\.cast") as caught:
        start(WARNED[case]())
    assert len(caught) == 1


LAST = np.append(SMALL, 2**40)

SILENT = {
    "a row that select leaves out": lambda: fb.from_arrays(LAST).select(range(100)),
    "a row that filter leaves out": lambda: fb.from_arrays(LAST).filter(lambda x: x < 2**31),
    "a row that take leaves out": lambda: fb.from_arrays(LAST).take(100),
    "rows of another part": lambda: fb.from_arrays(LAST).split(0.5, 0.5, seed=None)[0],
    "a row of another shard": lambda: fb.from_arrays(LAST).shard(1, 2),
    "rows that are never drawn": lambda: fb.from_arrays(LAST).sample(weights=LAST < 2**31),
    "a part of rows in memory": lambda: fb.concat(fb.from_arrays(LARGE), fb.from_arrays(SMALL)).select(
        range(1000, 1100)
    ),
    "small numbers": lambda: fb.from_arrays(SMALL),
    "the largest numbers": lambda: fb.from_arrays(np.array([2**31 - 1, -(2**31)] * 8)),
    "the largest unsigned numbers": lambda: fb.from_arrays(np.full(16, 2**32 - 1, np.uint64)),
    "numbers that a cast makes floats": lambda: fb.from_arrays(LARGE).map(fb.cast("float32")),
    "large numbers that a map makes small": lambda: fb.from_arrays(LARGE).map(lambda x: x - 2**40),
    "floats": lambda: fb.from_arrays(LARGE.astype("float64")),
}


WARNED_IN_ORDER = {
    "shuffled": lambda: fb.from_arrays(LAST).shuffle(seed=0),
    "selected": lambda: fb.from_arrays(LAST).select([3, 1000]),
    "the shard with the row": lambda: fb.from_arrays(LAST).shard(0, 2),
    "the part with the row": lambda: fb.from_arrays(LAST).split(0.5, 0.5, seed=None)[1],
    "repeated": lambda: fb.from_arrays(LAST).select([3, 1000]).repeat(),
    "a part of rows in memory": lambda: fb.concat(fb.from_arrays(SMALL), fb.from_arrays(LARGE)).select(
        range(1000, 1100)
    ),
}


@pytest.mark.parametrize("case", WARNED_IN_ORDER)
def test_values_of_rows_that_the_order_chooses_cause_a_warning(case):
    with pytest.warns(UserWarning, match="wraps around"):
        start(WARNED_IN_ORDER[case]())


def test_the_warning_names_the_line_of_the_user():
    for pipeline in (fb.from_arrays(LARGE), fb.from_arrays(SMALL).map(lambda x: x + 2**40)):
        with pytest.warns(UserWarning, match="wraps around") as caught:
            pipeline.batch(8).feed("numpy").close()
        assert caught[0].filename == __file__


@pytest.mark.parametrize("case", SILENT)
def test_values_that_fit_cause_no_warning(case, recwarn):
    start(SILENT[case]())
    assert not recwarn.list


def test_of_large_arrays_only_the_first_rows_are_checked(monkeypatch, recwarn):
    monkeypatch.setattr(narrowing, "_MAX_CHECKED_NBYTES", 100)
    start(fb.from_arrays(np.append(SMALL, 2**40)))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="1099511627776"):
        start(fb.from_arrays(np.append(2**40, SMALL)))


def test_rows_that_must_be_decoded_or_read_are_not_read_for_the_warning(recwarn):
    class Rows:
        reads = 0

        def __len__(self):
            return 100

        def __getitem__(self, row):
            Rows.reads += 1
            return LARGE[row]

    pipeline = fb.from_source(Rows())
    reads = Rows.reads
    start(pipeline)
    assert Rows.reads == reads
    assert not recwarn.list


def test_the_plan_has_an_ordinary_cast():
    request = start(fb.from_arrays(SMALL))
    assert [str(transform) for transform in request.plan_input.transforms] == ["cast(array: int32)"]
    assert type(request.plan_input.transforms[0]).__name__ == "Cast"
