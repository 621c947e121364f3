"""The functions that begin a pipeline, such as `from_arrays` and `from_files`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.core.ragged import Ragged
from forebay.core.source import AbstractSource
from forebay.core.spec import Tree, flatten
from forebay.errors import SourceError
from forebay.order.orders import Sequential
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.pipeline import Pipeline
from forebay.sources.arrays import ArraySource
from forebay.sources.file_recipe import FileSourceRecipe
from forebay.sources.foreign import adapt_source
from forebay.sources.frame_columns import library_of_frame
from forebay.sources.frames import FrameSource
from forebay.sources.open_paths import open_paths
from forebay.sources.ragged_arrays import RaggedArraySource, has_ragged_leaves
from forebay.sources.ragged_arrow import open_lists
from forebay.sources.sparse import SparseSource, has_sparse_leaf
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.generator import RowStream

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = [
    "from_arrays",
    "from_batches",
    "from_files",
    "from_frame",
    "from_generator",
    "from_ragged",
    "from_source",
]


@accept_familiar_arguments
def from_arrays(tree: Tree) -> Pipeline:
    """Feed the rows of arrays in memory, without copying the arrays.

    Args:
        tree: An array, or a dict, a tuple or any nesting of arrays. All arrays must have the same length. A series of
            pandas or polars counts as an array. If `tree` is a DataFrame, Forebay passes it to `from_frame`. The rows
            of a CSR matrix of SciPy become dense rows. A GPU makes these rows dense itself if this reduces the upload.
            For rows of different length, pass a `fb.Ragged`: all values in one array, and the offsets of the rows.

    Examples:
        >>> import numpy as np
        >>> data = {"image": np.zeros((6, 28, 28)), "label": np.arange(6)}
        >>> [batch["label"].tolist() for batch in from_arrays(data).batch(4).feed("numpy")]
        [[0, 1, 2, 3], [4, 5]]
    """
    if library_of_frame(tree) is not None:
        return from_frame(tree)
    if has_sparse_leaf(tree):
        return _from_indexed(SparseSource(tree))
    return _from_indexed(RaggedArraySource(tree) if has_ragged_leaves(tree) else ArraySource(tree))


@accept_familiar_arguments
def from_ragged(values: Tree, offsets: Any = None) -> Pipeline:
    """Feed rows of different length that follow each other in one array, without a copy.

    Batch the rows with `batch(n, pad=0)`, or `pack()` them.

    Args:
        values: An array, a mapped file (`np.memmap`), or a dict of arrays that share the offsets. A pyarrow column of
            lists, or a dict of such columns, has offsets of its own; then leave out `offsets`.
        offsets: Row i has the values `offsets[i]` to `offsets[i + 1] - 1`, so the array has one more offset than rows.

    Examples:
        >>> import numpy as np
        >>> pipeline = from_ragged(np.arange(6), offsets=[0, 3, 4, 6]).batch(3, pad=0)
        >>> next(pipeline.feed("numpy")).tolist()
        [[0, 1, 2], [3, 0, 0], [4, 5, 0]]
    """
    if offsets is None:
        return _from_indexed(open_lists(values))
    leaves, structure = flatten(values)
    return from_arrays(structure.unflatten([Ragged(leaf, offsets) for leaf in leaves]))


@accept_familiar_arguments
def from_frame(
    frame: Any,
    *,
    columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    dtype: "DTypeLike | Mapping[str, DTypeLike] | None" = None,
) -> Pipeline:
    """Feed the rows of a pandas or polars DataFrame, or of an Arrow table.

    Each column becomes a field with its name and dtype, without a copy if the memory layout and the dtype allow it.
    Categorical columns become integer codes; if exactly one field is categorical, `pipeline.class_names` has its
    categories. Forebay ignores the index of a pandas frame.

    Args:
        frame: A DataFrame of pandas or polars, or an Arrow table.
        columns: A list of columns, or a dict of fields. In the dict, `"y": "label"` renames a column, and `"x": ["a",
            "b"]` makes one vector of several columns of one dtype. By default, all columns.
        dtype: The dtype of all fields, or a dict with the dtypes of some fields. By default, the dtypes of the columns.

    Examples:
        >>> import pandas
        >>> frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": [0, 1]})
        >>> pipeline = from_frame(frame, columns={"x": ["a", "b"], "y": "label"}, dtype={"x": "float32"})
        >>> [batch["x"].tolist() for batch in pipeline.batch(2).feed("numpy")]
        [[[1.0, 3.0], [2.0, 4.0]]]
    """
    return _from_indexed(FrameSource(frame, columns=columns, dtype=dtype))


@accept_familiar_arguments
def from_files(files: str | Path | Sequence[str | Path], *, spec: Tree | None = None, **options: Any) -> Pipeline:
    """Feed the rows of files.

    Forebay memory-maps `.npy` and uncompressed `.npz` files, and decompresses compressed `.npz` files on first use.
    Some options depend on the format:

    - `.npz`: `members`, the names of the arrays to read
    - `.csv`: `delimiter`, `header`
    - `.bin`: `byteorder`, `skip_nbytes` (length of the header). `spec` is required.
    - images: `size` as (height, width), `channels`, `decoder`. `from_images` also reads labels.
    - `.h5`, `.zarr`: `members`, `group`, `external_files`. Forebay refuses a file that refers to data in other files
      unless you pass `external_files="read"`.
    - `.zarr`: `codecs`, the names of codecs that you trust in addition to those that Forebay knows to be safe
    - `.parquet`, `.arrow`: `columns`, `decode`
    - `.tar`: `members`, `decode`, `size`, `channels`, `decoder`
    - `.tfrecord`: `members`, `decode`

    `decode={"name": function}` converts each value of a column or member to an array.

    For all formats, Forebay keeps at most `max_open_files` files open and at most `max_held_bytes` of decompressed rows
    in memory (1 GiB by default). It may exceed these limits while several threads read different files.

    Forebay refuses an `.npz`, Parquet, Arrow, HDF5 or Zarr file that alone needs too much memory. If you pass
    `max_held_bytes`, the limit for such a file is this value or 64 MiB, whichever is larger. Without `max_held_bytes`,
    the limit is half of the memory of this machine. Forebay decompresses a `.tar.gz` or `.tfrecord.gz` file completely,
    and refuses a file that then does not fit in `max_held_bytes`.

    Forebay reads URLs such as `s3://bucket/*.npy` through fsspec, with these options:

    - `storage_options`: a dict of options for fsspec
    - `cache`, `cache_bytes`: a folder for downloaded data, and its size limit
    - `ram_bytes`: size limit of downloaded data in memory
    - `ahead_bytes`: size limit of prefetched data
    - `connections`, `attempts`: number of parallel requests, and of attempts per request

    Args:
        files: A path, a glob pattern, or a list of paths and patterns. Several files become one sequence of rows.
        spec: The shape and dtype of one row: an `fb.ArraySpec`, or a tree of them. By default, Forebay reads shapes and
            dtypes from the files.
        **options: The options of the format and of the object store, as listed above.

    Examples:
        >>> import tempfile, numpy as np, forebay as fb
        >>> folder = tempfile.TemporaryDirectory()
        >>> np.save(f"{folder.name}/a.npy", np.arange(3))
        >>> np.save(f"{folder.name}/b.npy", np.arange(3, 6))
        >>> with fb.from_files(f"{folder.name}/*.npy").batch(4).feed("numpy") as feed:
        ...     [batch.tolist() for batch in feed]
        [[0, 1, 2, 3], [4, 5]]
        >>> folder.cleanup()
    """
    files = files if isinstance(files, str | Path) else list(files)
    source = open_paths(files, spec=spec, **options)
    recipe = FileSourceRecipe(files, spec, options, source.version)
    source.identify = partial(_identify_decoded, recipe) if source.decodes_rows else recipe.identify
    return replace(_from_indexed(source), file_recipe=recipe)


@accept_familiar_arguments
def from_generator(make: Callable[[], Iterable[Tree]], *, spec: Tree | None = None) -> Pipeline:
    """Feed the rows that an iterable yields.

    Prefer a generator function to Python's `map()` or a class with `__next__`. If the code in a generator function
    raises StopIteration by mistake, Python turns it into a RuntimeError. In `map()` or `__next__`, the same mistake
    ends the pass silently.

    Args:
        make: A function that returns the iterable. Forebay calls it at the start of each pass.
        spec: The shape and dtype of one row: an `fb.ArraySpec`, or a tree of them. By default, Forebay reads them from
            the first row.

    Examples:
        >>> import numpy as np
        >>> pipeline = from_generator(lambda: (np.float32(i) for i in range(3))).batch(2)
        >>> [batch.tolist() for batch in pipeline.feed("numpy")]
        [[0.0, 1.0], [2.0]]
    """
    return Pipeline(RowStream(make, spec))


@accept_familiar_arguments
def from_batches(loader: Iterable[Tree] | Callable[[], Iterable[Tree]]) -> Pipeline:
    """Feed the ready-made batches of another loader.

    Args:
        loader: Any iterable of batches, such as a tf.data dataset, a DataLoader, a Grain loader or a list. It can also
            be a function that returns such an iterable.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> with fb.from_batches([np.arange(3), np.arange(3, 5)]).feed("numpy") as feed:
        ...     [batch.tolist() for batch in feed]
        [[0, 1, 2], [3, 4]]
    """
    return Pipeline(BatchStream(loader))


@accept_familiar_arguments
def from_source(source: Any) -> Pipeline:
    """Feed the rows of a `Source`, or of any object with `__len__` and `__getitem__`.

    Args:
        source: The object. If it also has `__getitems__`, Forebay passes many row numbers to this method in one call.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> class Squares:
        ...     def __len__(self):
        ...         return 5
        ...     def __getitem__(self, row):
        ...         return np.int64(row) ** 2
        >>> with fb.from_source(Squares()).batch(3).feed("numpy") as feed:
        ...     [batch.tolist() for batch in feed]
        [[0, 1, 4], [9, 16]]
    """
    return _from_indexed(adapt_source(source))


def _from_indexed(source: AbstractSource) -> Pipeline:
    if len(source) == 0:
        raise SourceError("the source has no rows. Pass one with at least one row.")
    return Pipeline(source, Sequential(len(source)))


def _identify_decoded(recipe: FileSourceRecipe) -> tuple[Any, ...]:
    """Return what identifies decoded rows: their files, and the versions of the decoders."""
    from forebay.sources.formats.decoder_versions import decoder_versions

    return recipe.identify(), decoder_versions(recipe.options.get("decoder", "pillow"))
