"""The figures of a real GPU: complete, plausible, of the right rows, and nothing kept of the device."""

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

driver = pytest.importorskip("forebay.engines.cuda.driver")

from forebay.core.ceilings import Probe  # noqa: E402
from forebay.core.hardware import Hardware  # noqa: E402
from forebay.engines.cuda.row_mover import Mover  # noqa: E402  # needs what the line above may skip for
from forebay.measure.probe.cuda import link, measure, rows  # noqa: E402
from forebay.measure.probe.cuda import link as latency  # noqa: E402
from forebay.measure.probe.cuda.rig import locked, open_rig  # noqa: E402
from forebay.measure.probe.measure import measure_machine  # noqa: E402
from forebay.measure.probe.timing import ROW_NBYTES, Buffers  # noqa: E402

SLACK_NBYTES = 64 << 20  # loaded kernels stay with the context, and others may use the device


@pytest.fixture(scope="module")
def buffers():
    made = Buffers.of(1 << 40)
    made.source[:] = np.random.default_rng(0).integers(256, size=len(made.source), dtype=np.uint8)
    return made


@pytest.fixture(scope="module")
def figures(device, buffers):
    found, missing = measure.measure_device(buffers)
    assert missing == []
    return found


def test_page_locked_copies_are_faster_than_pageable_ones(figures):
    assert figures.host_to_device_bytes_per_second > figures.pageable_host_to_device_bytes_per_second
    assert figures.device_to_host_bytes_per_second > figures.pageable_device_to_host_bytes_per_second


def test_speeds_are_those_of_a_link(figures):
    assert 1e9 < figures.host_to_device_bytes_per_second < 1e12
    assert figures.host_to_device_bytes_per_second < figures.both_ways_bytes_per_second < 1e12
    assert 1e9 < figures.page_lock_bytes_per_second < 1e12


def test_rows_cannot_cross_faster_than_the_link(figures):
    ceiling = 1.1 * figures.host_to_device_bytes_per_second
    speeds = [point.bytes_per_second for point in (*figures.pull.points, *figures.batched_copy.points)]
    assert len(speeds) == 2 * len(ROW_NBYTES)
    assert all(1e6 < speed < ceiling for speed in speeds)


def test_a_kernel_beats_a_dma_a_row_where_rows_are_small(figures):
    assert figures.pull.bytes_per_second(400) > figures.batched_copy.bytes_per_second(400)


def test_waiting_costs_more_than_queueing(figures):
    assert 0 < figures.launch_seconds < figures.launch_and_wait_seconds < 1e-3
    assert 0 < figures.small_copy_seconds < figures.readback_seconds < 1e-3


def test_the_device_is_named_with_its_memory_and_its_link(figures):
    assert figures.name
    assert 0 < figures.free_nbytes <= figures.total_nbytes
    assert figures.pcie_generation in range(1, 8)
    assert figures.pcie_width in (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("row_nbytes", ROW_NBYTES)
def test_the_rows_that_were_chosen_are_the_rows_that_arrive(device, buffers, row_nbytes):
    count = 5000 if row_nbytes < 4096 else 200
    chosen = np.random.default_rng(1).integers(len(buffers.source) // row_nbytes, size=count)
    arrived = np.zeros((count, row_nbytes), np.uint8)
    with open_rig(device, buffers) as rig, locked(rig, buffers.source):
        with rows.open_slot(rig, rig.stream, rig.inbound, count) as slot:
            rows.pull_rows(rig, Mover(device), slot, row_nbytes, chosen)
        rig.stream.download(driver.address_of(arrived), rig.inbound, arrived.nbytes)
        rig.wait()
    assert np.array_equal(arrived, buffers.rows(row_nbytes)[chosen])


def assert_given_back(device, buffers, free_before):
    free, _ = device.memory()
    assert free > free_before - SLACK_NBYTES
    device.lock(driver.address_of(buffers.source), buffers.source.nbytes)  # refused if still locked
    device.unlock(driver.address_of(buffers.source))


def test_the_device_and_the_memory_are_given_back(device, buffers, figures):
    free, _ = device.memory()
    measure.measure_device(buffers)
    assert_given_back(device, buffers, free)


@pytest.mark.parametrize(("module", "figure"), [(link, "page_lock"), (latency, "readback"), (rows, "pull")])
def test_interrupted_it_leaves_nothing_behind(device, buffers, figures, monkeypatch, module, figure):
    free, _ = device.memory()

    def interrupt(rig):
        rig.upload()  # something is under way
        raise KeyboardInterrupt

    monkeypatch.setattr(module, figure, interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure.measure_device(buffers)
    assert_given_back(device, buffers, free)


def test_a_part_that_fails_is_told_and_the_rest_is_kept(device, buffers, monkeypatch):
    def refuse():
        raise AttributeError("undefined symbol: cuMemcpyBatchAsync_v2")

    monkeypatch.setattr(rows, "BatchCopy", refuse)
    found, missing = measure.measure_device(buffers)
    assert found.batched_copy is None
    assert found.pull is not None
    assert missing == ["rows by batched copies: undefined symbol: cuMemcpyBatchAsync_v2."]


def test_the_machine_is_known_by_its_gpu_and_driver(device):
    here = Hardware.here()
    assert device.name in here.gpus
    assert here.driver_version


def test_a_whole_probe_takes_less_than_twenty_seconds(device, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    probe = measure_machine()
    probe.save()
    assert probe.seconds < 20
    assert probe.device is not None
    assert Probe.cached() == probe
