"""Batches without an end, checked on their way, with a consumer that is only NumPy."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from forebay.measure.bench.calibrate import calibrate
from forebay.measure.bench.data import array
from forebay.measure.bench.device_delivery import Delivery
from forebay.measure.bench.meters import Pace, device_first_batch, device_throughput
from forebay.measure.bench.model import Work
from forebay.measure.bench.stamps import WrongRowsError, first_elements_total

WORK = Work(64, (10,), 16, options={"stamped": True, "to": "numpy"})
PACE = Pace(seconds=0.02, warm_up_seconds=0.01, repeats=1)


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
        return first_elements_total(source)


class Contender:
    """Gives the batches of an epoch in order, or others in their place."""

    def __init__(self, batches=None):
        self.started = 0
        self._batches = batches

    def epochs(self, work):
        def start():
            self.started += 1
            return iter(np.split(array(work), 4) if self._batches is None else self._batches)

        return start


def delivery(contender):
    return Delivery(contender.epochs(WORK), NumpyConsumer(), WORK)


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a hundredth of a second whenever somebody looks at it."""
    monkeypatch.setattr(
        "forebay.measure.bench.device_delivery.perf_counter", map((0.01).__mul__, itertools.count()).__next__
    )


@pytest.mark.usefixtures("ticking")
def test_epochs_follow_each_other_for_as_long_as_asked():
    contender = Contender()
    going = delivery(contender)
    going.first()
    stretch = going.measure(0.05)
    assert stretch.batches == 5
    assert stretch.nbytes == stretch.batches * 16 * 40
    assert stretch.seconds == pytest.approx(0.06)
    assert contender.started > 1


def test_a_stretch_goes_on_where_the_last_one_stopped():
    contender = Contender()
    going = delivery(contender)
    going.first()
    batches = 1 + going.run(0.0) + going.run(0.0)
    assert (batches, contender.started) == (3, 1)


@pytest.mark.usefixtures("ticking")
def test_nothing_is_done_between_what_is_not_counted_and_the_clock(monkeypatch):
    going, done = delivery(Contender()), []

    class Clock:
        def __init__(self):
            done.append("clock started")

        def stop(self):
            done.append("clock stopped")
            return 1.0

    wait = going._consumer.wait
    monkeypatch.setattr("forebay.measure.bench.device_delivery.CpuClock", Clock)
    monkeypatch.setattr(going._consumer, "wait", lambda: done.append("waited") or wait())
    going.first()
    going.measure(0.05)
    assert done == ["clock started", "waited", "waited", "clock stopped"]


def test_a_first_batch_of_wrong_rows_is_refused():
    with pytest.raises(WrongRowsError, match="differs"):
        delivery(Contender([array(WORK)[:16] + np.float32(0.5)])).first()


@pytest.mark.usefixtures("ticking")
def test_an_epoch_that_lacks_rows_is_refused():
    going = delivery(Contender(np.split(array(WORK), 4)[:3]))
    going.first()
    with pytest.raises(WrongRowsError, match="an epoch sums to 1128 on the device and to 2016 at its source"):
        going.run(0.1)


def test_speed_and_cores_are_sampled(monkeypatch):
    monkeypatch.setattr(device_throughput, "load_consumer", lambda work: NumpyConsumer())
    gauge = device_throughput.prepare(Contender(), WORK, PACE)
    gauge.warm_up()
    sample = gauge.sample()
    assert sample["speed"] > 0
    assert sample["cpu"] > 0


def test_the_first_batch_is_timed_on_a_fresh_loader_and_the_very_first_apart(monkeypatch):
    monkeypatch.setattr(device_first_batch, "load_consumer", lambda work: NumpyConsumer())
    contender = Contender()
    gauge = device_first_batch.prepare(contender, WORK, PACE)
    gauge.warm_up()
    first, second = gauge.sample(), gauge.sample()
    assert contender.started == 3
    assert first["cold"] == second["cold"] > 0
    assert set(second) == {"made", "first", "cold"}


def test_a_step_is_made_a_little_longer_than_the_copy():
    products = calibrate(lambda products: 20e-6 + products * 50e-6, 700e-6)
    assert 1.0 <= (20e-6 + products * 50e-6) / 700e-6 <= 1.2


def test_a_step_that_grows_unevenly_is_still_made_to_fit():
    products = calibrate(lambda products: products * (20e-6 if products <= 12 else 30e-6), 700e-6)
    assert 1.0 <= products * 30e-6 / 700e-6 <= 1.2


def test_a_copy_shorter_than_one_product_takes_one():
    assert calibrate(lambda products: products * 50e-6, 10e-6) == 1


# The leader of a session, as a contender is, and what it started: the seconds of the latter, however long they took.
COUNTED = """
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


def test_cores_count_the_process_and_what_it_started():
    told = subprocess.check_output([sys.executable, "-c", COUNTED], text=True, start_new_session=True)
    assert float(told) > 0.2
