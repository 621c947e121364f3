"""Integers that do not fit into the dtype of the framework are warned of, once, when a feed starts."""

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
    """Holds 64-bit integers with 32 bits, as JAX does."""

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
def test_values_that_do_not_fit_are_warned_of(case):
    with pytest.warns(UserWarning, match=r"wraps around.*jax_enable_x64.*fb\.cast") as caught:
        start(WARNED[case]())
    assert len(caught) == 1


SILENT = {
    "small numbers": lambda: fb.from_arrays(SMALL),
    "the largest numbers": lambda: fb.from_arrays(np.array([2**31 - 1, -(2**31)] * 8)),
    "the largest unsigned numbers": lambda: fb.from_arrays(np.full(16, 2**32 - 1, np.uint64)),
    "numbers that a cast makes floats": lambda: fb.from_arrays(LARGE).map(fb.cast("float32")),
    "large numbers that a map makes small": lambda: fb.from_arrays(LARGE).map(lambda x: x - 2**40),
    "floats": lambda: fb.from_arrays(LARGE.astype("float64")),
}


@pytest.mark.parametrize("case", SILENT)
def test_values_that_fit_are_not_warned_of(case, recwarn):
    start(SILENT[case]())
    assert not recwarn.list


def test_of_large_arrays_only_the_first_rows_are_checked(monkeypatch, recwarn):
    monkeypatch.setattr(narrowing, "_MAX_CHECKED_NBYTES", 100)
    start(fb.from_arrays(np.append(SMALL, 2**40)))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="1099511627776"):
        start(fb.from_arrays(np.append(2**40, SMALL)))


def test_rows_that_must_be_decoded_or_read_are_not_read_for_it(recwarn):
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
