"""The conformance suite of sources: subclass `SourceTests` to test your own source."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from forebay.core.rows import Rows, row_count
from forebay.core.source import AbstractSource, MemoryRegion, Source
from forebay.core.spec import Array, Tree
from forebay.sources.foreign import adapt_source

__all__ = ["SourceTests"]

FILL = 0xA5  # each byte of a target before a gather; a byte that `gather` does not write keeps this value


class SourceTests:
    """Subclass this class and define `make_source`; pytest then runs the suite on your source.

    >>> class TestMySource(SourceTests):
    ...     def make_source(self, tmp_path):
    ...         rows = np.arange(60.0).reshape(20, 3)
    ...         return MySource(rows), rows

    `make_source` returns the source, and a tree of arrays with all rows that the source must deliver. A few dozen rows
    are enough. If the source divides its rows into files or blocks, let it have several of them.
    """

    def make_source(self, tmp_path: Path) -> tuple[Source, Tree]:
        raise NotImplementedError(
            f"{type(self).__name__} has no make_source(). Define it in this class, and let it return a source and its "
            "expected arrays."
        )

    @pytest.fixture
    def made(self, tmp_path: Path) -> Iterator[tuple[Source, Tree]]:
        """The source and the expected rows that `make_source` returns.

        The fixture closes the source after the test.
        """
        source, tree = self.make_source(tmp_path)
        yield source, tree
        source.close()

    @pytest.fixture
    def source(self, made: tuple[Source, Tree]) -> Source:
        return made[0]

    @pytest.fixture
    def expected(self, made: tuple[Source, Tree]) -> list[Array]:
        """The expected rows, one array per leaf."""
        source, tree = made
        return [np.asarray(leaf) for leaf in source.structure.flatten_like(tree)]

    def test_it_implements_the_source_protocol(self, source: Source) -> None:
        assert isinstance(source, Source)

    def test_it_declares_whether_it_can_prefetch(self, source: Source) -> None:
        if isinstance(source, AbstractSource) and type(source).prefetch is not AbstractSource.prefetch:
            assert source.can_prefetch

    def test_it_has_the_expected_number_of_rows(self, source: Source, expected: list[Array]) -> None:
        assert [len(source)] * len(expected) == [len(leaf) for leaf in expected]

    def test_its_specs_match_the_shapes_and_dtypes_of_its_rows(self, source: Source, expected: list[Array]) -> None:
        assert [spec.shape for spec in source.specs] == [leaf.shape[1:] for leaf in expected]
        assert [spec.dtype for spec in source.specs] == [leaf.dtype.newbyteorder("=") for leaf in expected]

    def test_its_structure_has_a_name_for_each_spec(self, source: Source) -> None:
        assert len(source.structure.paths) == len(source.specs)

    def test_its_specs_hold_no_python_objects(self, source: Source) -> None:
        assert not any(spec.dtype.hasobject for spec in source.specs)

    def test_all_rows_in_order_are_correct(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, np.arange(len(source)), expected)

    def test_all_rows_as_a_slice_are_correct(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, slice(0, len(source)), expected)

    def test_all_rows_in_reverse_order_are_correct(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, np.arange(len(source))[::-1], expected)

    def test_shuffled_rows_are_correct(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, np.random.default_rng(0).permutation(len(source)), expected)

    def test_repeated_rows_are_correct(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, random_rows(source, 3 * len(source)), expected)

    def test_gathering_zero_rows_is_allowed(self, source: Source, expected: list[Array]) -> None:
        assert_rows(source, np.arange(0), expected)
        assert_rows(source, slice(len(source) // 2, len(source) // 2), expected)

    def test_each_single_row_is_correct(self, source: Source, expected: list[Array]) -> None:
        for row in range(len(source)):
            assert_rows(source, np.asarray([row]), expected)

    def test_every_slice_that_starts_at_one_third_is_correct(self, source: Source, expected: list[Array]) -> None:
        for stop in range(len(source) // 3, len(source) + 1):
            assert_rows(source, slice(len(source) // 3, stop), expected)

    def test_four_concurrent_threads_get_their_own_rows(self, source: Source, expected: list[Array]) -> None:
        batches = [random_rows(source, 16, seed=seed) for seed in range(64)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda rows: assert_rows(source, rows, expected), batches))

    def test_single_leaves_are_correct(self, source: Source, expected: list[Array]) -> None:
        adapted = adapt_source(source)
        leaves = list(range(len(expected)))[::-2]
        for rows in (slice(0, len(source)), slice(len(source) // 3, len(source)), random_rows(source, 16)):
            for leaf, column in zip(leaves, adapted.gather_leaves(leaves, rows), strict=True):
                correct = np.ascontiguousarray(expected[leaf][rows]).astype(source.specs[leaf].dtype)
                assert column.tobytes() == correct.tobytes()

    def test_gather_does_not_change_the_row_numbers(self, source: Source) -> None:
        rows = random_rows(source, 16)
        before = rows.copy()
        source.gather(rows, make_target(source, len(rows)))
        assert rows.tolist() == before.tolist()

    def test_gather_writes_nothing_outside_its_target(self, source: Source, expected: list[Array]) -> None:
        rows = random_rows(source, 7)
        # Each buffer has one more row before the target, and one more row after it.
        buffers = [np.full((len(rows) + 2, leaf[:1].nbytes), FILL, np.uint8) for leaf in make_target(source, 1)]
        leaves = make_target(source, len(rows))
        target = [_view_as(buffer[1:-1], leaf) for buffer, leaf in zip(buffers, leaves, strict=True)]
        source.gather(rows, target)
        assert all((buffer[[0, -1]] == FILL).all() for buffer in buffers)

    def test_its_memory_regions_do_not_move(self, source: Source) -> None:
        regions = list(source.memory())
        assert all(isinstance(region, MemoryRegion) and region.nbytes >= 0 for region in regions)
        assert all(region.address > 0 for region in regions if region.nbytes)
        assert regions == list(source.memory())

    def test_it_can_be_closed_twice(self, source: Source) -> None:
        source.close()
        source.close()


def assert_rows(source: Source, rows: Rows, expected: list[Array]) -> None:
    """Gather rows, and compare them byte by byte with the same rows of `expected`."""
    target = make_target(source, row_count(rows))
    source.gather(rows, target)
    for leaf, all_rows, spec in zip(target, expected, source.specs, strict=True):
        correct = np.ascontiguousarray(all_rows[rows]).astype(spec.dtype)
        assert leaf.tobytes() == correct.tobytes(), f"rows {rows} should be {correct}, but are {leaf}"


def make_target(source: Source, count: int) -> list[Array]:
    """Return arrays for `gather` to write `count` rows to, filled with FILL.

    An axis of unknown length has length 0.
    """
    shapes = [tuple(length or 0 for length in spec.shape) for spec in source.specs]
    target = [np.empty((count, *shape), spec.dtype) for shape, spec in zip(shapes, source.specs, strict=True)]
    for leaf in target:
        leaf.reshape(-1).view(np.uint8).fill(FILL)
    return target


def random_rows(source: Source, count: int, *, seed: int = 0) -> Array:
    """Return `count` random row numbers, which may repeat.

    If the source is empty, return an empty array.
    """
    return np.random.default_rng(seed).integers(0, max(1, len(source)), count if len(source) else 0)


def _view_as(memory: Array, like: Array) -> Array:
    """Return a view of the memory with the shape and dtype of `like`."""
    return np.ndarray(like.shape, like.dtype, buffer=memory)
