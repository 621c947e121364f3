"""The conformance suite of engines: subclass `EngineTests` to test your own engine."""

import threading
from typing import Any

import numpy as np

import forebay as fb
from forebay.core.engine import Engine

__all__ = ["EngineTests"]


class EngineTests:
    """Subclass this class and define `make_engine`; pytest then runs the suite on your engine.

    Override `read` and `address` if NumPy cannot read the arrays of a batch.
    """

    to = "numpy"  # framework whose arrays the feed delivers

    def make_engine(self) -> Engine:
        raise NotImplementedError(
            f"{type(self).__name__} has no make_engine(). Define it in this class, and let it return a new engine."
        )

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        """Return one array of a batch as a NumPy array."""
        return np.asarray(array)

    def feed(self, tree: Any, *, batch: int, **options: Any) -> Any:
        """Return a feed that delivers shuffled batches of `tree` through a new engine."""
        pipeline = fb.from_arrays(tree).shuffle(seed=3).batch(batch)
        return pipeline.feed(self.to, device=self.make_engine(), **options)

    def test_each_epoch_delivers_every_row_once_and_unchanged(self) -> None:
        data = np.random.default_rng(0).random((1000, 7))
        with self.feed({"x": data, "row": np.arange(1000)}, batch=32) as feed:
            for _ in range(3):
                delivered = []
                for batch in feed:
                    rows = self.read(batch["row"])
                    assert np.array_equal(self.read(batch["x"]), data[rows])
                    delivered.extend(rows.tolist())
                assert sorted(delivered) == list(range(1000))

    def test_leaves_start_at_multiples_of_the_alignment(self) -> None:
        alignment = self.make_engine().alignment
        with self.feed((np.zeros((100, 3), np.uint8), np.zeros(100, np.uint8)), batch=7) as feed:
            for batch in feed:
                assert all(self.address(leaf) % alignment == 0 for leaf in batch)

    def test_kept_batches_keep_their_content(self) -> None:
        data = np.arange(5000)
        with self.feed(data, batch=8) as feed:
            kept = [self.read(batch) for _ in range(2) for batch in feed]
        assert sorted(np.concatenate(kept).tolist()) == sorted([*range(5000)] * 2)

    def test_kept_views_keep_their_content(self) -> None:
        data = np.repeat(np.arange(4000)[:, None], 4, axis=1)
        with self.feed(data, batch=16) as feed:
            views = [self.read(batch)[3][1:3] for batch in feed]
            rows = [view.tolist() for view in views]
            for _ in feed:
                pass
        assert [view.tolist() for view in views] == rows
        assert all(len(set(row)) == 1 for row in rows)

    def test_changing_a_batch_in_place_changes_no_other_batch_and_no_source(self) -> None:
        data = np.arange(600)
        with self.feed(data, batch=50) as feed:
            for batch in feed:
                self.read(batch)[...] = -1
            assert sorted(value for batch in feed for value in self.read(batch).tolist()) == list(range(600))
        assert np.array_equal(data, np.arange(600))

    def test_slow_and_fast_consumers_get_the_same_batches(self) -> None:
        data = np.arange(3000)
        with self.feed(data, batch=10) as fast:
            batches = [self.read(batch).copy() for batch in fast]
        with self.feed(data, batch=10) as slow:
            never_set = threading.Event()
            for fast_batch, slow_batch in zip(batches, slow, strict=True):
                never_set.wait(0.0002)  # seconds; makes this consumer slow
                assert np.array_equal(fast_batch, self.read(slow_batch))

    def test_closing_leaves_kept_batches_valid(self) -> None:
        feed = self.feed(np.arange(100), batch=10)
        next(feed)
        kept = next(feed)
        before = self.read(kept).copy()
        feed.close()
        feed.close()
        assert np.array_equal(self.read(kept), before)

    def address(self, leaf: Any) -> int:
        """Return the memory address of one array of a batch."""
        return int(leaf.__array_interface__["data"][0])
