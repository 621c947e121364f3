"""Emulations of cures for CuPy, with a stand-in for CuPy.

`test_framework_cases.py` runs this file in a process of its own, where `import cupy` finds the stand-in.
"""

from operator import methodcaller

import cupy
import numpy as np
import pytest
from tests.doctor.emulate.emulated import DATA, OTHERS, distinct_count, emulated, emulating

from forebay.doctor.model.emulation import EmulationKind


@pytest.mark.parametrize("convert", ["array", "asarray", "asanyarray", "ascontiguousarray"])
def test_the_same_data_is_uploaded_once(convert):
    def loop():
        return [getattr(cupy, convert)(DATA) for _ in range(20)]  # target

    arrays, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert (distinct_count(arrays), replaced) == (1, 19)


def test_other_data_and_other_lines_are_uploaded():
    def loop():
        first = [cupy.asarray(data) for data in OTHERS]  # target
        return first + [cupy.asarray(OTHERS[0]) for _ in range(4)]

    arrays, replaced = emulated(loop, EmulationKind.REMEMBER)
    assert [float(array[0]) for array in arrays] == [0, 1, 2, 3, 0, 0, 0, 0]
    assert (distinct_count(arrays), replaced) == (8, 0)


@pytest.mark.parametrize(
    "kind", [EmulationKind.REMEMBER, EmulationKind.LOCK, EmulationKind.NARROW, EmulationKind.PREFETCH]
)
def test_data_that_is_passed_by_keyword_is_uploaded_as_written(kind):
    def loop():
        array = cupy.zeros(4096, cupy.float32)
        values = [cupy.asarray(a=data) for data in OTHERS]  # target
        array.set(arr=OTHERS[3])
        return [*values, array]

    arrays, _ = emulated(loop, kind)
    assert [float(array[0]) for array in arrays] == [0, 1, 2, 3, 3]


def test_an_array_is_not_set_again_to_the_data_that_it_contains():
    def loop():
        array, values = cupy.zeros(4096, cupy.float32), []
        for data in (OTHERS[1], OTHERS[1], OTHERS[2]):
            array.set(data)  # target
            values.append(float(array[0]))
        return values

    assert emulated(loop, EmulationKind.REMEMBER) == ([1, 1, 2], 1)


def test_reuse_replaces_all_later_uploads_of_the_same_shape():
    def loop():
        return [cupy.asarray(data) for data in (*OTHERS, OTHERS[0][:10])]  # target

    arrays, _ = emulated(loop, EmulationKind.REUSE)
    assert [array.shape for array in arrays] == [(4096,)] * 4 + [(10,)]
    assert distinct_count(arrays) == 2


@pytest.mark.parametrize("read", [float, int, bool, str, methodcaller("get"), methodcaller("item")])
def test_every_kind_of_read_is_deferred(read):
    def loop():
        return [read(cupy.array(float(number))) for number in range(4)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert values[0] == values[1] == values[2] == values[3]
    assert replaced >= 3


def test_asnumpy_is_deferred():
    def loop():
        return [cupy.asnumpy(cupy.array(float(number))) for number in range(4)]  # target

    values, replaced = emulated(loop, EmulationKind.DEFER)
    assert (distinct_count(values), replaced) == (1, 3)


def test_waits_for_the_device_are_skipped(monkeypatch):
    waits = []
    monkeypatch.setattr(cupy.cuda.runtime, "deviceSynchronize", lambda: waits.append(1))

    def loop():
        for _ in range(10):
            cupy.cuda.runtime.deviceSynchronize()  # target

    assert emulated(loop, EmulationKind.SKIP, every=100)[1] == 9
    assert len(waits) == 1


def test_uploads_use_one_page_locked_buffer():
    def loop():
        return [float(cupy.asarray(data)[0]) for data in OTHERS]  # target

    values, replaced = emulated(loop, EmulationKind.LOCK)
    assert values == [0, 0, 0, 0]
    assert replaced >= 4


def test_numbers_are_narrowed_before_they_are_uploaded():
    doubles = [data.astype("float64") for data in OTHERS]

    def loop():
        return [cupy.asarray(data).dtype for data in doubles]  # target

    assert emulated(loop, EmulationKind.NARROW)[0] == [np.float32] * 4


def test_all_replacements_are_removed():
    def state():
        return [cupy.asarray, cupy.asnumpy, cupy.ndarray.get, cupy.ndarray.set, cupy.cuda.runtime.deviceSynchronize]

    def loop():
        return cupy.array(DATA)  # target

    before = state()
    for kind in set(EmulationKind) - {EmulationKind.PREFETCH}:  # the stand-in has no streams
        with emulating(loop, kind):
            loop()
    assert all(one is other for one, other in zip(before, state(), strict=True))
