"""The pipeline methods that choose rows or rename fields, and `index`.

`index` stores what other methods learn from a pass over all rows.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from forebay.core.progress_line import ProgressLine
from forebay.core.source import AbstractSource
from forebay.core.spec import Structure
from forebay.errors import PipelineError, SpecError
from forebay.order.choices import Span, SplitPart
from forebay.order.orders import Order
from forebay.order.sampling import Sampled
from forebay.pipeline.argument_checks import check_count, check_number
from forebay.pipeline.description import IndexFolder, PipelineDescription
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.row_choices import (
    balanced_weights,
    check_weights,
    select_positions,
    split_by_group,
    split_counts,
)
from forebay.pipeline.stored_columns import filter_mask, read_labels, refuse_transforms
from forebay.sources.renamed import rename_source
from forebay.sources.row_filter import RowFilter
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.choices import FilteredStream

__all__ = ["ChoiceMethods"]


@dataclass(frozen=True, slots=True)
class ChoiceMethods(PipelineDescription):
    """A pipeline description with methods that choose rows. Each method returns a new pipeline."""

    @accept_familiar_arguments
    def select(self, rows: Any) -> Self:
        """Keep the rows that a mask or row numbers choose.

        Call `select()` before `shuffle()`. `shard()` divides the selected rows, wherever you call it.

        Args:
            rows: A boolean array with one entry per row, an array of row numbers, a range or a slice. Row 0 is the
                first row of this pipeline. Row numbers may come in any order and may occur several times.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> rows = fb.from_arrays(np.arange(10) * 10)
            >>> next(rows.select([7, 2, 2]).batch(4).feed("numpy")).tolist()
            [70, 20, 20]
        """
        return replace(self, order=select_positions(self._fixed_order("select"), rows))

    @accept_familiar_arguments
    def rename(self, fields: Mapping[str, str]) -> Self:
        """Give fields other names, for example before `zip_rows()`.

        Call `rename()` before `map()`. Rows must be dicts.

        Args:
            fields: A dict from the old name of each field to its new name.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> rows = fb.from_arrays({"image": np.arange(4), "label": np.arange(4)})
            >>> list(next(rows.rename({"image": "mask"}).batch(2).feed("numpy")))
            ['mask', 'label']
        """
        self._refuse_batches("rename")
        refuse_transforms(self, "rename()")
        if not isinstance(self.source, AbstractSource):
            raise PipelineError("rename() needs rows that can be indexed, not a stream. Rename the fields in it.")
        structure = _rename_fields(self.structure, fields)
        if structure == self.structure:
            return self
        return replace(self, source=rename_source(self.source, structure), file_recipe=None)

    @accept_familiar_arguments
    def index(self, folder: str | os.PathLike[str], *, version: str | None = None) -> Self:
        """Store in a folder what later methods learn from a pass over all rows.

        The next process reads the results from the folder instead of the rows. The methods that do so are `filter()`,
        `split(by="field")`, `sample(balance="field")`, `window(within="field")`, `pack()` and `batch(tokens=)`.

        The name of each file in the folder is a hash of the rows and of the user's function. For rows in files, Forebay
        hashes the names, sizes and modification times of the files; for rows in arrays, the bytes. If the hash changes,
        the method reads the rows again.

        Args:
            folder: The folder for the results. Several pipelines and processes may share it.
            version: A text that stands for the rows and the functions, if Forebay cannot hash them. Change it whenever
                these rows or functions change.

        Examples:
            >>> import numpy as np, forebay as fb, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     rows = fb.from_arrays({"x": np.arange(6), "label": np.array([0, 1, 0, 1, 2, 1])}).index(folder)
            ...     first, second = (rows.filter(lambda label: label == 1, fields="label") for run in range(2))
            >>> [len(part.batch(1).feed("numpy")) for part in (first, second)]
            [3, 3]
        """
        self._fixed_order("index")
        if not isinstance(folder, str | os.PathLike) or not str(folder).strip() or "://" in str(folder):
            raise PipelineError(f"index({folder!r}): pass the path of a folder of this machine.")
        if version is not None and not isinstance(version, str):
            raise PipelineError(f"index(version={version!r}): pass a text, such as version='1'.")
        return replace(self, index_folder=IndexFolder(Path(folder).expanduser(), version))

    @accept_familiar_arguments
    def filter(self, function: Callable[[Any], Any], *, fields: str | Sequence[str] | None = None) -> Self:
        """Keep the rows for which a function returns True.

        If the rows can be indexed, `filter()` itself calls the function for all rows, and keeps the numbers of the
        chosen rows. On a stream, the feed calls the function while it reads. The function receives the rows as the
        source has them, so call `map()` after `filter()`.

        Args:
            function: Receives arrays with many rows, like a batch, and returns one boolean for each row.
            fields: With `"label"`, the function receives the array of this field. With several names, it receives a
                dict of arrays. By default, it receives all fields.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> data = {"x": np.arange(6), "label": np.array([0, 1, 0, 1, 2, 1])}
            >>> ones = fb.from_arrays(data).filter(lambda label: label == 1, fields="label")
            >>> next(ones.batch(4).feed("numpy"))["x"].tolist()
            [1, 3, 5]
        """
        self._refuse_batches("filter")
        refuse_transforms(self, "filter()")
        row_filter = RowFilter.of(function, self.structure, fields)
        if self.order is None:
            return replace(self, source=FilteredStream(self._stream, row_filter))
        order = self._fixed_order("filter")
        mask, pipeline = filter_mask(self, row_filter)
        if not mask.any():
            raise PipelineError(f"{row_filter} kept none of {len(mask)} rows. Check the function.")
        return replace(pipeline, order=select_positions(order, mask))

    @accept_familiar_arguments
    def split(self, *fractions: float, seed: int | None = 0, by: Any = None) -> tuple[Self, ...]:
        """Divide the rows into disjoint parts, and return one pipeline for each fraction.

        Each row is in exactly one part. Without `by`, the parts depend only on the number of rows, the fractions and
        the seed. The rows of a part come in a random order that is the same in every epoch; shuffle a part to change it
        in every epoch.

        Args:
            *fractions: The share of each part; the sum of all shares is 1. Or the number of rows of each part; the sum
                is the number of all rows.
            seed: Another seed gives other parts. With None, the parts are consecutive rows in the order of the source.
            by: Keeps groups together: the name of a field, or an array with one label per row. All rows with the same
                label go to one part, so sizes are approximate. The rows of such a part come in the order of the source.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> train, test = fb.from_arrays(np.arange(10)).split(0.8, 0.2, seed=None)
            >>> next(test.batch(4).feed("numpy")).tolist()
            [8, 9]
        """
        order = self._fixed_order("split")
        seed = None if seed is None else check_number(seed, "split(seed={})")
        assert order.length is not None
        counts = split_counts(fractions, order.length)
        if by is not None:
            labels, pipeline = read_labels(self, by, "split(by=...)")
            masks = split_by_group(labels, counts, seed)
            return tuple(replace(pipeline, order=select_positions(order, mask)) for mask in masks)
        starts = [0, *accumulate(counts)]
        parts: list[Order] = [
            Span(order, start, stop - start) if seed is None else SplitPart(order, seed, start, stop - start)
            for start, stop in pairwise(starts)
        ]
        return tuple(replace(self, order=part) for part in parts)

    @accept_familiar_arguments
    def sample(
        self,
        *,
        weights: Any = None,
        balance: Any = None,
        rows: int | None = None,
        replacement: bool = True,
        seed: int = 0,
    ) -> Self:
        """Draw rows at random by weight, with a different draw in each epoch.

        Pass one of `weights` and `balance`.

        Args:
            weights: One number per row: a row with weight 2 is drawn twice as often as a row with weight 1.
            balance: The name of a field, or an array with one label per row. Each label gets the same share of the
                drawn rows.
            rows: The number of rows of an epoch; by default the number of rows of this pipeline.
            replacement: With False, each row is drawn at most once per epoch, and rows with a large weight tend to come
                first.
            seed: Another seed gives other draws.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> rare = fb.from_arrays(np.arange(4)).sample(weights=[0, 0, 1, 0], rows=3)
            >>> next(rare.batch(4).feed("numpy")).tolist()
            [2, 2, 2]
        """
        order = self._fixed_order("sample")
        assert order.length is not None
        seed, count = check_number(seed, "sample(seed={})"), order.length
        if rows is not None:
            count = check_count(rows, "sample(rows={})")
        if not isinstance(replacement, bool):
            raise PipelineError(f"sample(replacement={replacement!r}): pass True or False.")
        if (weights is None) == (balance is None):
            given = "neither" if weights is None else "both"
            raise PipelineError(f"sample() got {given} of weights= and balance=. Pass one of them.")
        pipeline = self
        if balance is not None:
            labels, pipeline = read_labels(self, balance, "sample(balance=...)")
            weights = balanced_weights(labels)
        checked = check_weights(weights, order.length)
        available = int(np.count_nonzero(checked))
        if not replacement and count > available:
            raise PipelineError(
                f"sample(rows={count}, replacement=False): only {available} rows have a weight above 0. Draw fewer "
                "rows, or pass replacement=True."
            )
        with ProgressLine(f"sample() prepares draws from {order.length:,} weights"):
            sampled = Sampled.of(order, checked, seed=seed, count=count, replacement=bool(replacement))
        return replace(pipeline, order=sampled, seed=seed)

    def _fixed_order(self, verb: str) -> Order:
        """Return the order if it is finite and fixed, else raise PipelineError.

        `verb` is the name of the method that the user called.
        """
        self._refuse_batches(verb)
        if self.order is None:
            raise PipelineError(
                f"{verb}() needs rows that can be indexed, but a stream is read in sequence. Use filter(), skip() and "
                "take(), or store the rows in arrays or files."
            )
        if self.order.length is None:
            raise PipelineError(
                f"{verb}() needs a known number of rows, but the repeat() before it never ends. Call {verb}() before "
                "repeat()."
            )
        if not self.order.is_fixed:
            raise PipelineError(
                f"{verb}() comes after shuffle() or sample(), so it would choose different rows in each epoch. Call "
                f"{verb}() before them."
            )
        return self.order

    def _refuse_batches(self, verb: str) -> None:
        if isinstance(self.source, BatchStream):
            raise PipelineError(
                f"{verb}() works on rows, but from_batches() yields batches. Do it in the loader that makes them."
            )
        if self.batching is not None:
            raise PipelineError(f"{verb}() works on rows: call it before batch().")


def _rename_fields(structure: Structure, names: Any) -> Structure:
    """Return the structure with renamed fields.

    `names` has the new name of a field for its old name. Raise SpecError if a name does not fit.
    """
    if structure.kind is not dict or not isinstance(names, Mapping):
        raise SpecError('rename() needs rows that are dicts, and a dict of names. Write rename({"image": "mask"}).')
    unknown = [name for name in names if name not in structure.keys]
    if unknown:
        raise SpecError(
            f"rename() got {unknown[0]!r}, but the fields are {', '.join(map(repr, structure.keys))}. Name one of them."
        )
    keys = tuple(names.get(key, key) for key in structure.keys)
    for key in keys:
        if not isinstance(key, str) or keys.count(key) > 1:
            raise SpecError(f"rename({dict(names)!r}) would give the fields the names {keys}. Pass one text for each.")
    return replace(structure, keys=keys)
