"""The events that the JAX hooks record for debug settings and callbacks.

`test_framework_cases.py` runs this file in the process of JAX, because frameworks conflict in one process.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import debugging
from jax.experimental import io_callback
from tests.doctor.capture.hooks.hook_scripts import watched


def settings(seen):
    return [(event.api, seen.text(event)) for event in seen.of("setting")]


def test_an_updated_option_is_recorded_with_its_line():
    def run():
        jax.config.update("jax_debug_nans", True)
        jax.config.update("jax_debug_nans", False)
        jax.config.update("jax_log_compiles", False)

    assert settings(watched(run)) == [("jax_debug_nans", 'jax.config.update("jax_debug_nans", True)')]


@pytest.mark.parametrize(
    ("make_context", "setting"),
    [
        (lambda: jax.debug_nans(True), "jax_debug_nans"),
        (lambda: jax.checking_leaks(), "jax_check_tracer_leaks"),
        (lambda: jax.disable_jit(), "jax_disable_jit"),
    ],
)
def test_a_context_is_recorded_while_it_is_active(make_context, setting):
    def run():
        with make_context():
            return jax.jit(lambda x: x + 1)(1)

    seen = watched(run)
    assert seen.result == 2
    assert [event.api for event in seen.of("setting")] == [setting]


def test_a_context_that_switches_a_setting_off_is_not_recorded():
    def run():
        with jax.debug_nans(False):
            return jax.jit(lambda x: x + 1)(1)

    assert watched(run).of("setting") == []


def test_a_profiled_function_still_raises_for_a_nan():
    def run():
        with jax.debug_nans(True):
            return jax.jit(jnp.log)(-1.0)

    with pytest.raises(FloatingPointError):
        watched(run)
    assert not jax.config.jax_debug_nans


def test_a_trace_is_recorded_until_it_is_stopped(tmp_path):
    def run():
        with jax.profiler.trace(str(tmp_path)):
            return jnp.ones(3) + 1

    assert [event.api for event in watched(run).of("setting")] == ["jax.profiler"]


def test_a_print_is_recorded_on_its_own_line(capsys):
    @jax.jit
    def step(x):
        jax.debug.print("value {}", x)
        return x + 1

    def run():
        results = [step(float(number)) for number in range(5)]
        jax.effects_barrier()
        return [float(result) for result in results]

    seen = watched(run)
    # Older versions of JAX print with `jax.debug.callback`.
    api = "jax.debug.print" if hasattr(debugging, "debug_print_p") else "jax.debug.callback"
    assert {seen.text(event) for event in seen.of("callback", api)} == {'jax.debug.print("value {}", x)'}
    assert len(seen.of("callback")) == 5
    assert capsys.readouterr().out.count("value") == 5
    assert seen.result == [1, 2, 3, 4, 5]


def test_callbacks_return_their_results_and_are_recorded_by_name():
    shape = jax.ShapeDtypeStruct((), np.float32)

    @jax.jit
    def step(x):
        return jax.pure_callback(np.sin, shape, x) + io_callback(np.cos, shape, x)

    seen = watched(lambda: float(step(np.float32(0))))
    assert seen.result == 1
    assert sorted(event.api for event in seen.of("callback")) == ["jax.experimental.io_callback", "jax.pure_callback"]


def test_an_error_of_a_callback_is_raised():
    def fail(x):
        raise ValueError("no such value")

    def run():
        jax.jit(lambda x: jax.pure_callback(fail, x, x))(jnp.ones(2)).block_until_ready()

    with pytest.raises(Exception, match="no such value"):
        watched(run)


def test_a_function_that_was_compiled_during_profiling_records_nothing_later():
    calls = []
    step = jax.jit(lambda x: jax.debug.callback(calls.append, x))
    seen = watched(lambda: (step(1.0), jax.effects_barrier()))
    step(2.0)
    jax.effects_barrier()
    assert (len(calls), len(seen.of("callback"))) == (2, 1)
