"""Warm feeds and records of calling threads, for tests of the consumer's fills."""

import itertools
import mmap
import random
import threading
import time
from collections import deque
from itertools import islice

from tests.engines.cuda.pull.host_comparison import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.fake_cuda import wait_until_located

import forebay as fb
from forebay.engines.cuda.pull.row_puller import RowPuller
from forebay.feed.indexed_filler import IndexedFiller
from forebay.pipeline.plan import LENT_SLOTS

TIMEOUT_SECONDS = 60.0  # a test that waits longer fails
CONSUMER_THREAD = threading.main_thread().name  # this thread iterates the feed in most tests
CONSUMER = "consumer"  # name of the thread that iterates the feed in tests with `ConsumerThread`
WORKERS = {"forebay-0", "forebay-1"}


def make_shuffled(rows=400, row_nbytes=100):
    return fb.from_arrays({"x": random_rows(rows, row_nbytes, "u1")}).shuffle(seed=1).batch(8)


def unaligned_rows(rows, row_nbytes):
    """Make rows whose first and last pages also hold other data."""
    raw = random_rows(1, rows * row_nbytes + 2 * mmap.PAGESIZE, "u1").reshape(-1)
    start = -raw.ctypes.data % mmap.PAGESIZE + 100
    return raw[start : start + rows * row_nbytes].reshape(rows, row_nbytes)


def locate_rows(framework, feed):
    """Page-lock and upload all rows, wait for idle workers, and move to epoch 2."""
    read_all(framework, islice(feed, 1))
    wait_until_located()
    wait_until_idle(feed)
    feed.set_epoch(2)


def warm(framework, feed):
    """Call `locate_rows`, and let kernels fill every slot once."""
    locate_rows(framework, feed)
    for _ in itertools.takewhile(lambda _: not has_all_slots(feed), range(1000)):
        kept = deque(maxlen=2 * feed.plan.group_batches)  # kept batches make the feed use further slots
        for batch in feed:
            kept.append(batch)
    wait_until_idle(feed)
    feed.set_epoch(2)


def has_all_slots(feed):
    runner = feed._runner
    made = [slot.memory.workspace is not None for slot in list(runner._exchange.slots.values())]
    return len(made) >= runner._exchange.ring.slots + LENT_SLOTS and all(made)


def wait_until_idle(feed):
    while len(feed._runner._fill_condition._waiters) < len(feed._runner._threads):
        time.sleep(0.0005)


def start_closing(feed):
    """Close the feed on another thread, and return that thread when it has begun."""
    closing = threading.Thread(target=feed.close)
    closing.start()
    while not feed._runner._is_closed:
        time.sleep(0.0005)
    return closing


def record_threads(monkeypatch, owner, name):
    """Record the thread of every later call of a method."""
    names, method = [], getattr(owner, name)

    def called(*arguments, **options):
        names.append(threading.current_thread().name)
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, called)
    return names


def limit_enqueuing(monkeypatch, answers):
    """Let `only_enqueues` return True only if the next of these answers is True too."""
    original = IndexedFiller.only_enqueues
    monkeypatch.setattr(IndexedFiller, "only_enqueues", lambda work, slot: next(answers) and original(work, slot))


def collect_until(framework, feed, kind):
    """Return the batches before an error, and the error. The frames of the error would keep a batch."""
    found = []
    try:
        for batch in feed:
            found += read_all(framework, [batch])
    except kind as error:
        return found, error.with_traceback(None)
    raise AssertionError(f"{kind.__name__} was not raised")


class FailingFills:
    """Lets `count` fills fail, from number `first` on. Raises SystemExit after `most` fills, so that no test hangs."""

    def __init__(self, monkeypatch, error, *, first=0, count=1, most=1000):
        self._error, self._failing, self._most = error, range(first, first + count), most
        self._fill, self._numbers = RowPuller.fill, itertools.count()
        self.tried = 0
        monkeypatch.setattr(RowPuller, "fill", lambda *arguments: self._call(*arguments))

    def _call(self, *arguments):
        self.tried += 1
        if self.tried > self._most:
            raise SystemExit("the feed would try fills forever")
        if next(self._numbers) in self._failing:
            raise self._error
        self._fill(*arguments)


class PausedCall:
    """Pauses one call of a method on the consumer's thread until `resume`."""

    def __init__(self, monkeypatch, owner, name, number=0):
        self._method, self._numbers, self._number = getattr(owner, name), itertools.count(), number
        self._reached, self._resumed = threading.Event(), threading.Event()
        monkeypatch.setattr(owner, name, lambda *arguments: self._call(*arguments))

    def _call(self, *arguments):
        if threading.current_thread().name == CONSUMER and next(self._numbers) == self._number:
            self._reached.set()
            self._resumed.wait(TIMEOUT_SECONDS)
        return self._method(*arguments)

    def is_reached(self):
        return self._reached.wait(TIMEOUT_SECONDS)

    def resume(self):
        self._resumed.set()


class ConsumerThread(threading.Thread):
    """Iterates an epoch on another thread, and records its batches and its error."""

    def __init__(self, framework, epoch):
        super().__init__(name=CONSUMER, daemon=True)
        self._framework, self._epoch = framework, epoch
        self.found, self.ended_by = [], None
        self.start()

    def run(self):
        try:
            for batch in self._epoch:
                self.found += read_all(self._framework, [batch])
        except BaseException as error:
            self.ended_by = error.with_traceback(None)

    def has_finished(self, seconds=TIMEOUT_SECONDS):
        self.join(seconds)
        return not self.is_alive()


class RandomConsumer:
    """A consumer that keeps random batches, leaves epochs early and changes arrays between epochs."""

    def __init__(self, framework, seed):
        self._framework, self._dice = framework, random.Random(seed)
        rows, lengths = self._dice.choice([60, 350]), self._dice.choices([7, 16, 100, 1500], k=2)
        self._data = {f"leaf{number}": random_rows(rows, nbytes, "u1") for number, nbytes in enumerate(lengths)}
        self._pipeline = fb.from_arrays(self._data).shuffle(seed=seed).batch(self._dice.randrange(1, 7))
        self._kept = []

    def take_epochs(self, count):
        with feed_of(self._pipeline, self._framework, resident=self._dice.choice(["always", "never"])) as feed:
            for number in range(count):
                self._take(feed, host_epoch(self._pipeline, number))
                wait_until_located()
                self._change()
        self._kept.clear()

    def _take(self, feed, expected):
        taken = self._dice.choice([len(expected), len(expected), self._dice.randint(1, len(expected))])
        for number, batch in enumerate(islice(feed, taken)):
            self._kept.append((batch, expected[number]))
            if self._dice.random() < 0.8:
                self._release_some()
        assert number == taken - 1

    def _release_some(self):
        batches, expected = zip(*self._kept, strict=True)
        assert_same(read_all(self._framework, batches), expected)
        del self._kept[: len(self._kept) - self._dice.choice([0, 0, 0, 1, 5])]

    def _change(self):
        if self._dice.random() < 0.4:
            for array in self._data.values():
                array += 50
