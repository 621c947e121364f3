"""Emulations of cures for JAX.

`test_framework_cases.py` runs this file in the process of JAX, because frameworks conflict in one process.
"""

from functools import partial
from operator import methodcaller

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.array import ArrayImpl
from tests.doctor.emulate.emulated import DATA, OTHERS, distinct_count, emulated, emulating, without_setting

from forebay.doctor.model.emulation import EmulationKind


@pytest.mark.parametrize("convert", ["asarray", "array"])
def test_the_same_data_is_uploaded_once(convert):
    def loop():
        return [getattr(jnp, convert)(DATA) for _ in range(20)]  # target

    arrays, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert (distinct_count(arrays), replaced) == (1, 19)
    assert arrays[0].tolist() == DATA.tolist()


def test_other_data_and_other_lines_are_uploaded():
    def loop():
        first = [jnp.asarray(data) for data in OTHERS]  # target
        return first + [jnp.asarray(OTHERS[0]) for _ in range(4)]

    arrays, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [float(array[0]) for array in arrays] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert (distinct_count(arrays), replaced) == (8, 0)


def test_every_array_of_a_tree_is_put_once():
    def loop():
        return [jax.device_put({"x": DATA, "y": [OTHERS[1]]}) for _ in range(5)]  # target

    trees, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert distinct_count(tree["x"] for tree in trees) == distinct_count(tree["y"][0] for tree in trees) == 1
    assert replaced == 8


@pytest.mark.parametrize("as_keyword", [False, True])
def test_a_tree_of_devices_is_used_as_written(as_keyword):
    first, second = jax.devices()
    devices = {"x": first, "y": second}

    def loop():
        put = partial(jax.device_put, device=devices) if as_keyword else lambda tree: jax.device_put(tree, devices)
        return [put({"x": DATA, "y": OTHERS[1]}) for _ in range(3)]  # target

    trees, _ = emulated(loop, EmulationKind.REMEMBER)
    assert [(tree["x"].device, tree["y"].device) for tree in trees] == [(first, second)] * 3


def test_data_is_uploaded_once_to_each_device():
    first, second = jax.devices()

    def loop():
        return [jax.device_put(DATA, device) for device in (first, second, first, second)]  # target

    arrays, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [array.device for array in arrays] == [first, second, first, second]
    assert (distinct_count(arrays), replaced) == (2, 2)


def test_reuse_replaces_all_uploads_of_the_same_kind():
    def loop():
        return [jnp.asarray(data) for data in (*OTHERS, OTHERS[0][:10])]  # target

    arrays, replaced = emulated(loop, EmulationKind.REUSE)
    assert [len(array) for array in arrays] == [4096] * 4 + [10]
    assert (distinct_count(arrays), replaced) == (2, 3)


def test_arguments_of_a_jitted_function_are_uploaded_once_and_the_function_is_compiled_once():
    traces = []

    def loop():
        @jax.jit
        def step(table, number):
            traces.append(1)
            return table["words"].sum() + number

        return [float(step({"words": data}, number)) for number, data in enumerate(OTHERS)]  # target

    assert emulated(loop, EmulationKind.REUSE) == ([0, 1, 2, 3], 3)
    assert len(traces) == 1


def test_functions_made_by_a_jit_decorator_with_options_are_replaced_too():
    def loop():
        @jax.jit
        def plain(table):
            return table.sum()

        @partial(jax.jit, static_argnames="times")
        def scaled(table, times):
            return plain(table) * times

        return [float(scaled(data, times=2)) for data in OTHERS]  # target

    assert emulated(loop, EmulationKind.REUSE) == ([0, 0, 0, 0], 3)


def test_a_donated_array_is_uploaded_again():
    def loop():
        step = jax.jit(lambda batch: batch + 1, donate_argnums=0)
        results = [step(jnp.asarray(DATA)) for _ in range(3)]  # target
        return [float(result[0]) for result in results]

    assert emulated(loop, EmulationKind.REMEMBER)[0] == [1, 1, 1]


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        double = jax.jit(lambda table: table * 2)
        return [double(jnp.asarray(data)) + double(data) for data in doubles]  # target

    arrays, replaced = emulated(loop, EmulationKind.NARROW)
    assert ([float(array[0]) for array in arrays], replaced) == ([0, 0, 0, 0], 8)


def test_an_upload_starts_one_step_early():
    def loop():
        return [float(jax.device_put(data)[0]) for data in OTHERS]  # target

    # The emulation uploads the data of a step for the next step, so each step gets the data of the previous step.
    assert emulated(loop, EmulationKind.PREFETCH) == ([0, 0, 1, 2], 3)


@pytest.mark.parametrize("read", [float, int, bool, str, methodcaller("item"), methodcaller("tolist")])
def test_every_kind_of_read_is_deferred(read):
    def loop():
        return [read(jnp.float32(number)) for number in range(4)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert values[0] == values[1] == values[2] == values[3]
    assert replaced >= 3


@pytest.mark.parametrize("keyword", [False, True])
def test_device_get_of_a_tree_is_deferred(keyword):
    def loop():
        trees = [[jnp.float32(number)] for number in range(4)]
        return [jax.device_get(x=tree) if keyword else jax.device_get(tree) for tree in trees]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert (values, replaced) == ([[0]] * 4, 3)


def test_one_read_in_every_n_is_made():
    def loop():
        return [float(jnp.float32(number)) for number in range(10)]  # target

    assert emulated(loop, EmulationKind.DEFER, every=5) == ([0, 0, 0, 0, 4, 4, 4, 4, 4, 9], 7)


def test_waits_for_the_device_are_skipped():
    def loop():
        array = jnp.ones(8)
        return [jax.block_until_ready(array).block_until_ready() is array for _ in range(10)]  # target

    assert emulated(loop, EmulationKind.SKIP, every=100) == ([True] * 10, 19)


def test_a_wait_with_a_keyword_is_skipped():
    def loop():
        array = jnp.ones(8)
        return [jax.block_until_ready(x=array) is array for _ in range(10)]  # target

    assert emulated(loop, EmulationKind.SKIP, every=100) == ([True] * 10, 9)


def test_all_replacements_are_removed():
    def state():
        return [jnp.asarray, jax.device_put, jax.jit, jax.device_get, ArrayImpl.__float__, ArrayImpl.block_until_ready]

    def loop():
        return float(jnp.asarray(DATA)[0])  # target

    before = state()
    for kind in EmulationKind:
        with emulating(loop, kind):
            loop()
    assert all(one is other for one, other in zip(before, state(), strict=True))


def test_a_check_for_nan_is_kept_off():
    def loop():
        jax.config.update("jax_debug_nans", True)
        with jax.debug_nans(True):
            return bool(jax.config.jax_debug_nans), bool(jnp.isnan(jax.jit(jnp.log)(-1.0)))

    assert without_setting("jax_debug_nans", loop) == ((False, True), 2)


def test_a_print_on_the_target_line_is_left_out(capsys):
    def loop():
        def step(x):
            jax.debug.print("left out {}", x)  # target
            jax.debug.print("kept {}", x)
            return x + 1

        return float(jax.jit(step)(1.0)), jax.effects_barrier()

    assert without_setting("jax.debug.print", loop, loop) == ((2.0, None), 1)
    assert capsys.readouterr().out == "kept 1.0\n"


def test_a_result_of_a_callback_on_the_target_line_is_zero():
    def loop():
        def step(x):
            return jax.pure_callback(np.cos, x, x) + 1  # target

        return jax.jit(step)(jnp.zeros(2)).tolist()

    assert without_setting("jax.pure_callback", loop, loop) == ([1.0, 1.0], 1)
