"""What a cure's emulation does to JAX, on the line that is accused and nowhere else."""

from functools import partial
from operator import methodcaller

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.array import ArrayImpl
from tests.doctor.emulate.emulated import emulated, emulating

from forebay.doctor.model.emulation import Way

DATA = np.arange(4096, dtype="float32")
OTHERS = [np.full(4096, number, dtype="float32") for number in range(4)]


def different(values):
    return len({id(value) for value in values})


@pytest.mark.parametrize("convert", ["asarray", "array"])
def test_the_same_data_is_uploaded_once(convert):
    def loop():
        return [getattr(jnp, convert)(DATA) for _ in range(20)]  # accused

    arrays, replaced = emulated(loop, Way.REMEMBER)
    assert (different(arrays), replaced) == (1, 19)
    assert arrays[0].tolist() == DATA.tolist()


def test_other_data_and_other_lines_are_left_alone():
    def loop():
        first = [jnp.asarray(data) for data in OTHERS]  # accused
        return first + [jnp.asarray(OTHERS[0]) for _ in range(4)]

    arrays, replaced = emulated(loop, Way.REMEMBER)
    assert [float(array[0]) for array in arrays] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert (different(arrays), replaced) == (8, 0)


def test_every_array_of_a_tree_is_put_once():
    def loop():
        return [jax.device_put({"x": DATA, "y": [OTHERS[1]]}) for _ in range(5)]  # accused

    trees, replaced = emulated(loop, Way.REMEMBER)
    assert different(tree["x"] for tree in trees) == different(tree["y"][0] for tree in trees) == 1
    assert replaced == 8


def test_each_device_is_given_its_own():
    first, second = jax.devices()

    def loop():
        return [jax.device_put(DATA, device) for device in (first, second, first, second)]  # accused

    arrays, replaced = emulated(loop, Way.REMEMBER)
    assert [array.device for array in arrays] == [first, second, first, second]
    assert (different(arrays), replaced) == (2, 2)


def test_whatever_its_data_one_upload_stands_for_all_of_its_kind():
    def loop():
        return [jnp.asarray(data) for data in (*OTHERS, OTHERS[0][:10])]  # accused

    arrays, replaced = emulated(loop, Way.REUSE)
    assert [len(array) for array in arrays] == [4096] * 4 + [10]
    assert (different(arrays), replaced) == (2, 3)


def test_what_a_jitted_function_is_given_is_uploaded_once_and_it_is_compiled_once():
    traces = []

    def loop():
        @jax.jit
        def step(table, number):
            traces.append(1)
            return table["words"].sum() + number

        return [float(step({"words": data}, number)) for number, data in enumerate(OTHERS)]  # accused

    assert emulated(loop, Way.REUSE) == ([0, 1, 2, 3], 3)
    assert len(traces) == 1


def test_a_decorator_with_options_makes_such_functions_too():
    def loop():
        @jax.jit
        def plain(table):
            return table.sum()

        @partial(jax.jit, static_argnames="times")
        def scaled(table, times):
            return plain(table) * times

        return [float(scaled(data, times=2)) for data in OTHERS]  # accused

    assert emulated(loop, Way.REUSE) == ([0, 0, 0, 0], 3)


def test_what_was_donated_is_uploaded_anew():
    def loop():
        step = jax.jit(lambda batch: batch + 1, donate_argnums=0)
        results = [step(jnp.asarray(DATA)) for _ in range(3)]  # accused
        return [float(result[0]) for result in results]

    assert emulated(loop, Way.REMEMBER)[0] == [1, 1, 1]


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        double = jax.jit(lambda table: table * 2)
        return [double(jnp.asarray(data)) + double(data) for data in doubles]  # accused

    arrays, replaced = emulated(loop, Way.NARROW)
    assert ([float(array[0]) for array in arrays], replaced) == ([0, 0, 0, 0], 8)


def test_an_upload_is_made_a_step_ahead():
    def loop():
        return [float(jax.device_put(data)[0]) for data in OTHERS]  # accused

    assert emulated(loop, Way.AHEAD) == ([0, 0, 1, 2], 3)


@pytest.mark.parametrize("read", [float, int, bool, str, methodcaller("item"), methodcaller("tolist")])
def test_every_way_to_read_is_put_off(read):
    def loop():
        return [read(jnp.float32(number)) for number in range(4)]  # accused

    values, replaced = emulated(loop, Way.DEFER)
    assert values[0] == values[1] == values[2] == values[3]
    assert replaced >= 3


def test_every_array_of_a_tree_is_brought_back_once():
    def loop():
        return [jax.device_get([jnp.float32(number)]) for number in range(4)]  # accused

    values, replaced = emulated(loop, Way.DEFER)
    assert (values, replaced) == ([[0]] * 4, 3)


def test_values_are_read_now_and_then():
    def loop():
        return [float(jnp.float32(number)) for number in range(10)]  # accused

    assert emulated(loop, Way.DEFER, every=5) == ([0, 0, 0, 0, 4, 4, 4, 4, 4, 9], 7)


def test_nobody_waits_for_the_device():
    def loop():
        array = jnp.ones(8)
        return [jax.block_until_ready(array).block_until_ready() is array for _ in range(10)]  # accused

    assert emulated(loop, Way.SKIP, every=100) == ([True] * 10, 19)


def test_everything_is_undone():
    def state():
        return [jnp.asarray, jax.device_put, jax.jit, jax.device_get, ArrayImpl.__float__, ArrayImpl.block_until_ready]

    def loop():
        return float(jnp.asarray(DATA)[0])  # accused

    before = state()
    for way in Way:
        with emulating(loop, way):
            loop()
    assert all(one is other for one, other in zip(before, state(), strict=True))
