"""What every engine must hold: `EngineTests`, to be subclassed with the engine in question."""

import threading
from typing import Any

import numpy as np

import forebay as fb
from forebay.core.engine import Engine

__all__ = ["EngineTests"]


class EngineTests:
    """Subclass it, give `make_engine`, and pytest runs the suite on your engine.

    `read` turns a batch's array into NumPy, where the engine hands off something else.
    """

    to = "numpy"

    def make_engine(self) -> Engine:
        raise NotImplementedError("give make_engine() that returns a fresh engine")  # for whoever subclasses

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def feed(self, tree: Any, *, batch: int, **options: Any) -> Any:
        pipeline = fb.from_arrays(tree).shuffle(seed=3).batch(batch)
        return pipeline.feed(self.to, device=self.make_engine(), **options)

    def test_every_row_arrives_once_per_epoch_with_its_own_bytes(self) -> None:
        data = np.random.default_rng(0).random((1000, 7))
        with self.feed({"x": data, "row": np.arange(1000)}, batch=32) as feed:
            for _ in range(3):
                seen = []
                for batch in feed:
                    rows = self.read(batch["row"])
                    assert np.array_equal(self.read(batch["x"]), data[rows])
                    seen.extend(rows.tolist())
                assert sorted(seen) == list(range(1000))

    def test_leaves_start_at_multiples_of_the_alignment(self) -> None:
        alignment = self.make_engine().alignment
        with self.feed((np.zeros((100, 3), np.uint8), np.zeros(100, np.uint8)), batch=7) as feed:
            for batch in feed:
                assert all(self.address(leaf) % alignment == 0 for leaf in batch)

    def test_batches_that_are_kept_keep_their_content(self) -> None:
        data = np.arange(5000)
        with self.feed(data, batch=8) as feed:
            kept = [self.read(batch) for _ in range(2) for batch in feed]
        assert sorted(np.concatenate(kept).tolist()) == sorted([*range(5000)] * 2)

    def test_views_that_are_kept_keep_their_content(self) -> None:
        data = np.repeat(np.arange(4000)[:, None], 4, axis=1)
        with self.feed(data, batch=16) as feed:
            views = [self.read(batch)[3][1:3] for batch in feed]
            rows = [view.tolist() for view in views]
            for _ in feed:
                pass
        assert [view.tolist() for view in views] == rows
        assert all(len(set(row)) == 1 for row in rows)

    def test_batches_changed_in_place_change_nothing_else(self) -> None:
        data = np.arange(600)
        with self.feed(data, batch=50) as feed:
            for batch in feed:
                self.read(batch)[...] = -1
            assert sorted(value for batch in feed for value in self.read(batch).tolist()) == list(range(600))
        assert np.array_equal(data, np.arange(600))

    def test_a_slow_consumer_and_a_quick_one_get_the_same(self) -> None:
        data = np.arange(3000)
        with self.feed(data, batch=10) as quick, self.feed(data, batch=10) as slow:
            pause = threading.Event()
            for left, right in zip(quick, slow, strict=True):
                pause.wait(0.0002)
                assert np.array_equal(self.read(left), self.read(right))

    def test_closing_leaves_held_batches_valid(self) -> None:
        feed = self.feed(np.arange(100), batch=10)
        held = self.read(next(feed)).copy(), next(feed)
        before = self.read(held[1]).copy()
        feed.close()
        feed.close()
        assert np.array_equal(self.read(held[1]), before)

    def address(self, leaf: Any) -> int:
        """Where a leaf's memory begins."""
        return int(leaf.__array_interface__["data"][0])
