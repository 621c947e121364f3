"""The ceilings of a real GPU: complete, plausible, measured on the right rows, and without leaks."""

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

pytest.importorskip("cuda.bindings.driver")

from forebay.core.c_functions import address_of  # noqa: E402
from forebay.core.ceilings import Probe  # noqa: E402
from forebay.core.hardware import Hardware  # noqa: E402
from forebay.engines.cuda.row_mover import RowMover  # noqa: E402
from forebay.measure.probe.cuda import link, measure, rows  # noqa: E402
from forebay.measure.probe.cuda.rig import open_rig, page_locked  # noqa: E402
from forebay.measure.probe.measure import measure_machine  # noqa: E402
from forebay.measure.probe.timing import ROW_NBYTES, Buffers  # noqa: E402

SLACK_NBYTES = 64 << 20  # loaded kernels stay in memory, and other processes may use the device


@pytest.fixture(scope="module")
def buffers():
    made = Buffers.for_memory(1 << 40)
    made.source[:] = np.random.default_rng(0).integers(256, size=len(made.source), dtype=np.uint8)
    return made


@pytest.fixture(scope="module")
def ceilings(device, buffers):
    found, missing = measure.measure_device(buffers)
    assert missing == []
    return found


def test_page_locked_copies_are_faster_than_pageable_ones(ceilings):
    assert ceilings.host_to_device_bytes_per_second > ceilings.pageable_host_to_device_bytes_per_second
    assert ceilings.device_to_host_bytes_per_second > ceilings.pageable_device_to_host_bytes_per_second


def test_the_speeds_of_the_link_are_plausible(ceilings):
    assert 1e9 < ceilings.host_to_device_bytes_per_second < 1e12
    assert ceilings.host_to_device_bytes_per_second < ceilings.both_ways_bytes_per_second < 1e12
    assert 1e9 < ceilings.page_lock_bytes_per_second < 1e12


def test_rows_cannot_cross_faster_than_the_link(ceilings):
    limit = 1.1 * ceilings.host_to_device_bytes_per_second
    speeds = [point.bytes_per_second for point in (*ceilings.pull.points, *ceilings.batched_copy.points)]
    assert len(speeds) == 2 * len(ROW_NBYTES)
    assert all(1e6 < speed < limit for speed in speeds)


def test_a_kernel_is_faster_than_one_dma_per_row_for_small_rows(ceilings):
    assert ceilings.pull.bytes_per_second(400) > ceilings.batched_copy.bytes_per_second(400)


def test_waiting_costs_more_than_queueing(ceilings):
    assert 0 < ceilings.launch_seconds < ceilings.launch_and_wait_seconds < 1e-3
    assert 0 < ceilings.small_copy_seconds < ceilings.readback_seconds < 1e-3


def test_the_device_is_named_with_its_memory_and_its_link(ceilings):
    assert ceilings.name
    assert 0 < ceilings.free_nbytes <= ceilings.total_nbytes
    assert ceilings.pcie_generation in range(1, 8)
    assert ceilings.pcie_width in (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("row_nbytes", ROW_NBYTES)
def test_the_requested_rows_arrive(device, buffers, row_nbytes):
    count = 5000 if row_nbytes < 4096 else 200
    indices = np.random.default_rng(1).integers(len(buffers.source) // row_nbytes, size=count)
    arrived = np.zeros((count, row_nbytes), np.uint8)
    with open_rig(device, buffers) as rig, page_locked(rig, buffers.source):
        with rows.open_pull_target(rig, rig.stream, rig.inbound, count) as target:
            rows.pull_rows(rig, RowMover(device), target, row_nbytes, indices)
        rig.stream.download(address_of(arrived), rig.inbound, arrived.nbytes)
        rig.wait()
    assert np.array_equal(arrived, buffers.rows(row_nbytes)[indices])


def assert_released(device, buffers, free_before):
    free, _ = device.memory()
    assert free > free_before - SLACK_NBYTES
    device.page_lock(address_of(buffers.source), buffers.source.nbytes)  # refused if still locked
    device.page_unlock(address_of(buffers.source))


def test_device_memory_and_page_locks_are_released(device, buffers, ceilings):
    free, _ = device.memory()
    measure.measure_device(buffers)
    assert_released(device, buffers, free)


@pytest.mark.parametrize(
    ("module", "function"), [(link, "measure_page_lock"), (link, "measure_readback"), (rows, "measure_pull")]
)
def test_an_interrupt_leaves_no_memory_and_no_page_lock(device, buffers, ceilings, monkeypatch, module, function):
    free, _ = device.memory()

    def interrupt(rig):
        rig.upload()  # a copy is pending
        raise KeyboardInterrupt

    monkeypatch.setattr(module, function, interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure.measure_device(buffers)
    assert_released(device, buffers, free)


def test_a_failed_measurement_is_reported_and_the_others_are_kept(device, buffers, monkeypatch):
    def refuse():
        raise AttributeError("undefined symbol: cuMemcpyBatchAsync_v2")

    monkeypatch.setattr(rows, "BatchCopy", refuse)
    found, missing = measure.measure_device(buffers)
    assert found.batched_copy is None
    assert found.pull is not None
    assert missing == ["rows by batched copies: undefined symbol: cuMemcpyBatchAsync_v2."]


def test_the_hardware_contains_the_gpu_and_the_driver(device):
    here = Hardware.detect()
    assert device.name in here.gpus
    assert here.driver_version


def test_a_whole_probe_takes_less_than_twenty_seconds(device, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    probe = measure_machine()
    probe.save()
    assert probe.seconds < 20
    assert probe.device is not None
    assert Probe.cached() == probe
