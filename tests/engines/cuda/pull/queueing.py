"""What tests of filling on the consumer's thread stand on: warm feeds, and who called what on which thread."""

import itertools
import mmap
import random
import threading
import time
from collections import deque
from itertools import islice

from tests.engines.cuda.pull.test_fetcher import assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.plain_cuda import prepared

import forebay as fb
from forebay.engines.cuda.pull.fetcher import Fetcher
from forebay.feed.indexed_filler import IndexedWork
from forebay.pipeline.plan import USUALLY_LENT

PATIENCE = 60.0  # seconds until something counts as hanging
HERE = threading.main_thread().name
CONSUMER = "consumer"  # a thread that takes an epoch beside the test
WORKERS = {"forebay-0", "forebay-1"}


def shuffled(rows=400, row_nbytes=100):
    return fb.from_arrays({"x": random_rows(rows, row_nbytes, "u1")}).shuffle(seed=1).batch(8)


def askew(rows, row_nbytes):
    """Rows of which the first and the last lie on pages that are not theirs alone."""
    raw = random_rows(1, rows * row_nbytes + 2 * mmap.PAGESIZE, "u1").reshape(-1)
    start = -raw.ctypes.data % mmap.PAGESIZE + 100
    return raw[start : start + rows * row_nbytes].reshape(rows, row_nbytes)


def get_ready(side, feed):
    """Everything is page-locked and uploaded, and the workers are asleep; epoch 2 comes next."""
    read_all(side, islice(feed, 1))
    prepared()
    asleep(feed)
    feed.set_epoch(2)


def warm(side, feed):
    """And besides, kernels have filled every slot that goes round."""
    get_ready(side, feed)
    for _ in itertools.takewhile(lambda _: not has_all_slots(feed), range(1000)):
        kept = deque(maxlen=2 * feed.plan.group_batches)  # so that as many are lent as ever are
        for batch in feed:
            kept.append(batch)
    asleep(feed)
    feed.set_epoch(2)


def has_all_slots(feed):
    runner = feed._runner
    made = [slot.memory.workspace is not None for slot in list(runner._slots.values())]
    return len(made) >= runner._ring.slots + USUALLY_LENT and all(made)


def asleep(feed):
    while len(feed._runner._may_fill._waiters) < len(feed._runner._threads):
        time.sleep(0.0005)


def begun_to_close(feed):
    """Closed on a thread of its own, which has told everybody by now and waits for who is at work."""
    closing = threading.Thread(target=feed.close)
    closing.start()
    while not feed._runner._closed:
        time.sleep(0.0005)
    return closing


def recorded(monkeypatch, owner, name):
    """On which thread each call of a method is made, from now on."""
    names, method = [], getattr(owner, name)

    def called(*arguments, **options):
        names.append(threading.current_thread().name)
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, called)
    return names


def answering(monkeypatch, answers):
    """Let filling be no more than queueing only where these answers, one each time it is asked, say so too."""
    asked = IndexedWork.queues_only
    monkeypatch.setattr(IndexedWork, "queues_only", lambda work, slot: next(answers) and asked(work, slot))


def received_until(side, feed, kind):
    """What came before an error of that kind, and the error, without the frames that would keep a batch."""
    found = []
    try:
        for batch in feed:
            found += read_all(side, [batch])
    except kind as error:
        return found, error.with_traceback(None)
    raise AssertionError(f"no {kind.__name__} came")


class Failing:
    """Fills raise an error, from some number on, so many of them; what would go on for ever is ended."""

    def __init__(self, monkeypatch, error, *, first=0, count=1, most=1000):
        self._error, self._failing, self._most = error, range(first, first + count), most
        self._fill, self._numbers = Fetcher.fill, itertools.count()
        self.tried = 0
        monkeypatch.setattr(Fetcher, "fill", lambda *arguments: self._call(*arguments))

    def _call(self, *arguments):
        self.tried += 1
        if self.tried > self._most:
            raise SystemExit("this would have gone on for ever")
        if next(self._numbers) in self._failing:
            raise self._error
        self._fill(*arguments)


class Held:
    """A method: its call of that number on the consumer's thread stands still until it is told to go on."""

    def __init__(self, monkeypatch, owner, name, number=0):
        self._method, self._numbers, self._number = getattr(owner, name), itertools.count(), number
        self._inside, self._on = threading.Event(), threading.Event()
        monkeypatch.setattr(owner, name, lambda *arguments: self._call(*arguments))

    def _call(self, *arguments):
        if threading.current_thread().name == CONSUMER and next(self._numbers) == self._number:
            self._inside.set()
            self._on.wait(PATIENCE)
        return self._method(*arguments)

    def reached(self):
        return self._inside.wait(PATIENCE)

    def go_on(self):
        self._on.set()


class Taker(threading.Thread):
    """Takes an epoch on a thread of its own: what it got, and what ended it."""

    def __init__(self, side, epoch):
        super().__init__(name=CONSUMER, daemon=True)
        self._side, self._epoch = side, epoch
        self.found, self.ended_by = [], None
        self.start()

    def run(self):
        try:
            for batch in self._epoch:
                self.found += read_all(self._side, [batch])
        except BaseException as error:
            self.ended_by = error.with_traceback(None)

    def joined(self, seconds=PATIENCE):
        self.join(seconds)
        return not self.is_alive()


class Whim:
    """A consumer that keeps some batches, leaves some epochs early and changes its arrays between them."""

    def __init__(self, side, seed):
        self._side, self._dice = side, random.Random(seed)
        rows, lengths = self._dice.choice([60, 350]), self._dice.choices([7, 16, 100, 1500], k=2)
        self._data = {f"leaf{number}": random_rows(rows, nbytes, "u1") for number, nbytes in enumerate(lengths)}
        self._pipeline = fb.from_arrays(self._data).shuffle(seed=seed).batch(self._dice.randrange(1, 7))
        self._kept = []

    def take_epochs(self, count):
        with feed_of(self._pipeline, self._side, resident=self._dice.choice(["always", "never"])) as feed:
            for number in range(count):
                self._take(feed, host_epoch(self._pipeline, number))
                prepared()
                self._change()
        self._kept.clear()

    def _take(self, feed, expected):
        taken = self._dice.choice([len(expected), len(expected), self._dice.randint(1, len(expected))])
        for number, batch in enumerate(islice(feed, taken)):
            self._kept.append((batch, expected[number]))
            if self._dice.random() < 0.8:
                self._let_go()
        assert number == taken - 1

    def _let_go(self):
        batches, expected = zip(*self._kept, strict=True)
        assert_same(read_all(self._side, batches), expected)
        del self._kept[: len(self._kept) - self._dice.choice([0, 0, 0, 1, 5])]

    def _change(self):
        if self._dice.random() < 0.4:
            for array in self._data.values():
                array += 50
