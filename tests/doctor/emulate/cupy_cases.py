"""What a cure's emulation does to CuPy, on the line that is accused and nowhere else; with a stand-in for it."""

from operator import methodcaller

import cupy
import numpy as np
import pytest
from tests.doctor.emulate.emulated import emulated, emulating

from forebay.doctor.model.emulation import Way

DATA = np.arange(4096, dtype="float32")
OTHERS = [np.full(4096, number, dtype="float32") for number in range(4)]


def different(values):
    return len({id(value) for value in values})


@pytest.mark.parametrize("convert", ["array", "asarray", "asanyarray", "ascontiguousarray"])
def test_the_same_data_is_uploaded_once(convert):
    def loop():
        return [getattr(cupy, convert)(DATA) for _ in range(20)]  # accused

    arrays, replaced = emulated(loop, Way.REMEMBER)
    assert (different(arrays), replaced) == (1, 19)


def test_other_data_and_other_lines_are_left_alone():
    def loop():
        first = [cupy.asarray(data) for data in OTHERS]  # accused
        return first + [cupy.asarray(OTHERS[0]) for _ in range(4)]

    arrays, replaced = emulated(loop, Way.REMEMBER)
    assert [float(array[0]) for array in arrays] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert (different(arrays), replaced) == (8, 0)


def test_what_an_array_holds_already_is_not_set_again():
    def loop():
        array, values = cupy.zeros(4096, cupy.float32), []
        for data in (OTHERS[1], OTHERS[1], OTHERS[2]):
            array.set(data)  # accused
            values.append(float(array[0]))
        return values

    assert emulated(loop, Way.REMEMBER) == ([1, 1, 2], 1)


def test_whatever_its_data_one_upload_stands_for_all_of_its_kind():
    def loop():
        return [cupy.asarray(data) for data in (*OTHERS, OTHERS[0][:10])]  # accused

    arrays, _ = emulated(loop, Way.REUSE)
    assert [array.shape for array in arrays] == [(4096,)] * 4 + [(10,)]
    assert different(arrays) == 2


@pytest.mark.parametrize("read", [float, int, bool, str, methodcaller("get"), methodcaller("item")])
def test_every_way_to_read_is_put_off(read):
    def loop():
        return [read(cupy.array(float(number))) for number in range(4)]  # accused

    values, replaced = emulated(loop, Way.DEFER)
    assert values[0] == values[1] == values[2] == values[3]
    assert replaced >= 3


def test_what_becomes_numpys_is_brought_back_once():
    def loop():
        return [cupy.asnumpy(cupy.array(float(number))) for number in range(4)]  # accused

    values, replaced = emulated(loop, Way.DEFER)
    assert (different(values), replaced) == (1, 3)


def test_nobody_waits_for_the_device(monkeypatch):
    waits = []
    monkeypatch.setattr(cupy.cuda.runtime, "deviceSynchronize", lambda: waits.append(1))

    def loop():
        for _ in range(10):
            cupy.cuda.runtime.deviceSynchronize()  # accused

    assert emulated(loop, Way.SKIP, every=100)[1] == 9
    assert len(waits) == 1


def test_uploads_come_out_of_one_place():
    def loop():
        return [float(cupy.asarray(data)[0]) for data in OTHERS]  # accused

    values, replaced = emulated(loop, Way.LOCK)
    assert values == [0, 0, 0, 0]
    assert replaced >= 4


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        return [cupy.asarray(data).dtype for data in doubles]  # accused

    assert emulated(loop, Way.NARROW)[0] == [np.float32] * 4


def test_everything_is_undone():
    def state():
        return [cupy.asarray, cupy.asnumpy, cupy.ndarray.get, cupy.ndarray.set, cupy.cuda.runtime.deviceSynchronize]

    def loop():
        return cupy.array(DATA)  # accused

    before = state()
    for way in set(Way) - {Way.AHEAD}:  # for which the stand-in has too few streams
        with emulating(loop, way):
            loop()
    assert all(one is other for one, other in zip(before, state(), strict=True))
