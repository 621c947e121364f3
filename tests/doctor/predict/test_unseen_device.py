"""If a framework computes in threads of the CPU, its device works for at most the CPU time of these threads."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import JAX, download, loop, ops, run

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.predict.build_timeline import build_timeline
from forebay.doctor.predict.changes import remove_work
from forebay.doctor.predict.timeline import steady_step_seconds
from forebay.doctor.predict.unseen_device import with_slowest_device

COMPUTING = (run("jax.jit", 2, line=3), ops(4, 3, api="jax operations", line=4))
READING = (*COMPUTING, download("float(array)", 1, line=5, device="cpu:0"))


def slowest(happenings, other_cores, frameworks=JAX):
    view = CaptureView(loop(*happenings, marked=False, frameworks=frameworks, facts={"other_cores": other_cores}))
    return with_slowest_device(view, build_timeline(view))


@pytest.mark.parametrize("happenings", [COMPUTING, READING])
@given(other_cores=st.floats(0, 4) | st.none())
def test_the_unchanged_step_keeps_its_time(happenings, other_cores):
    unlimited = steady_step_seconds(slowest(happenings, None))
    assert steady_step_seconds(slowest(happenings, other_cores)) == pytest.approx(unlimited)


@pytest.mark.parametrize("happenings", [COMPUTING, READING])
@given(shares=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted), seconds=st.floats(0, 8e-3))
def test_a_device_that_works_less_lets_a_cure_save_more(happenings, shares, seconds):
    cured = [steady_step_seconds(remove_work(seconds)(slowest(happenings, share))) for share in shares]
    assert cured[0] <= cured[1] * (1 + 1e-9)


def test_idle_threads_do_not_limit_a_step():
    step = steady_step_seconds(slowest(COMPUTING, None))
    assert steady_step_seconds(remove_work(4e-3)(slowest(COMPUTING, 0.0))) == pytest.approx(step - 4e-3)
    assert steady_step_seconds(remove_work(4e-3)(slowest(COMPUTING, None))) == pytest.approx(step)


def test_the_cpu_time_of_threads_does_not_limit_a_gpu():
    gpu = {"jax": {**JAX["jax"], "gpus": 1}}
    limited, unlimited = (slowest(COMPUTING, cores, gpu) for cores in (0.0, None))
    assert replace(limited) == replace(unlimited)
