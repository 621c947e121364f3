"""Delivery of batches over any number of epochs, with checks of their rows."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from forebay.measure.bench.data import make_array
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import RunSettings, device_throughput, first_batch
from forebay.measure.bench.meters.device_step import calibrate_products
from forebay.measure.bench.model import Workload
from forebay.measure.bench.row_ids import WrongRowsError, sum_first_elements

WORK = Workload(64, (10,), 16, options={"numbered": True, "to": "numpy"})
SETTINGS = RunSettings(seconds=0.02, warm_up_seconds=0.01, repeats=1)


class NumpyConsumer:
    def __init__(self):
        self._total, self._ended = 0, []

    def take(self, batch):
        self._total += int(batch[:, 0].sum(dtype=np.float64))

    def end_epoch(self):
        self._ended.append(self._total)
        self._total = 0

    def wait(self):
        ended, self._ended = self._ended, []
        return ended

    def download(self, batch):
        return batch

    def expected_total(self, source):
        return sum_first_elements(source)


class CountingContender:
    """A contender that counts epochs, with the batches of the workload or the given batches."""

    def __init__(self, batches=None):
        self.started = 0
        self._batches = batches

    def __call__(self, work):
        def start_epoch():
            self.started += 1
            return iter(np.split(make_array(work), 4) if self._batches is None else self._batches)

        return start_epoch


def delivery(contender):
    return Delivery(contender(WORK), NumpyConsumer(), WORK)


@pytest.fixture
def ticking_clock(monkeypatch):
    """A clock that advances by 10 ms at every reading."""
    monkeypatch.setattr(
        "forebay.measure.bench.device_delivery.perf_counter", map((0.01).__mul__, itertools.count()).__next__
    )


@pytest.mark.usefixtures("ticking_clock")
def test_epochs_follow_each_other_until_the_time_is_up():
    contender = CountingContender()
    endless = delivery(contender)
    endless.take_first()
    delivered = endless.measure(0.05)
    assert delivered.batches == 5
    assert delivered.nbytes == delivered.batches * 16 * 40
    assert delivered.seconds == pytest.approx(0.06)
    assert contender.started > 1


def test_an_interval_continues_where_the_last_one_stopped():
    contender = CountingContender()
    endless = delivery(contender)
    endless.take_first()
    batches = 1 + endless.run(0.0) + endless.run(0.0)
    assert (batches, contender.started) == (3, 1)


@pytest.mark.usefixtures("ticking_clock")
def test_no_other_work_runs_between_the_prefetched_and_the_measured_batches(monkeypatch):
    endless, events = delivery(CountingContender()), []

    class Clock:
        def __init__(self):
            events.append("clock started")

        def stop(self):
            events.append("clock stopped")
            return 1.0

    wait = endless._consumer.wait
    monkeypatch.setattr("forebay.measure.bench.device_delivery.CpuClock", Clock)
    monkeypatch.setattr(endless._consumer, "wait", lambda: events.append("waited") or wait())
    endless.take_first()
    endless.measure(0.05)
    assert events == ["clock started", "waited", "waited", "clock stopped"]


def test_a_first_batch_of_wrong_rows_is_refused():
    with pytest.raises(WrongRowsError, match="differs"):
        delivery(CountingContender([make_array(WORK)[:16] + np.float32(0.5)])).take_first()


@pytest.mark.usefixtures("ticking_clock")
def test_an_epoch_that_lacks_rows_is_refused():
    endless = delivery(CountingContender(np.split(make_array(WORK), 4)[:3]))
    endless.take_first()
    with pytest.raises(WrongRowsError, match="an epoch has the sum 1128 on the device, but 2016 in the source"):
        endless.run(0.1)


def test_speed_and_cores_are_sampled(monkeypatch):
    monkeypatch.setattr(device_throughput, "load_consumer", lambda work: NumpyConsumer())
    sampler = device_throughput.prepare(CountingContender(), WORK, SETTINGS)
    sampler.warm_up()
    sample = sampler.sample()
    assert sample["speed"] > 0
    assert sample["cpu"] > 0


def test_the_first_batch_of_each_new_loader_is_timed_and_the_cold_batch_separately(monkeypatch):
    monkeypatch.setattr(first_batch, "load_consumer", lambda work: NumpyConsumer())
    contender = CountingContender()
    sampler = first_batch.prepare_on_device(contender, WORK, SETTINGS)
    sampler.warm_up()
    first, second = sampler.sample(), sampler.sample()
    assert contender.started == 3
    assert first["cold"] == second["cold"] > 0
    assert set(second) == {"made", "first", "cold"}


def test_a_step_is_calibrated_to_take_slightly_longer_than_the_copy():
    products = calibrate_products(lambda products: 20e-6 + products * 50e-6, 700e-6)
    assert 1.0 <= (20e-6 + products * 50e-6) / 700e-6 <= 1.2


def test_calibration_succeeds_if_step_time_is_not_linear():
    products = calibrate_products(lambda products: products * (20e-6 if products <= 12 else 30e-6), 700e-6)
    assert 1.0 <= products * 30e-6 / 700e-6 <= 1.2


def test_a_copy_shorter_than_one_product_needs_one_product():
    assert calibrate_products(lambda products: products * 50e-6, 10e-6) == 1


# A session leader with a child process, like a contender. It prints the CPU seconds of the child.
CHILD_SECONDS = """
import subprocess, sys, time
from forebay.measure.bench.proc_stats import CpuClock

busy = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ntime.sleep(600)"
began, own, clock = time.perf_counter(), time.process_time(), CpuClock()
with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as started:
    started.stdout.readline()
    cores = clock.stop()
    started.kill()
print(cores * (time.perf_counter() - began) - (time.process_time() - own))
"""


@pytest.mark.slow
def test_busy_cores_include_child_processes():
    printed = subprocess.check_output([sys.executable, "-c", CHILD_SECONDS], text=True, start_new_session=True)
    assert float(printed) > 0.2
