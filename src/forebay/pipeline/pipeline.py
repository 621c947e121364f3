"""`Pipeline`, the description of a feed: source, order, transforms, batches."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from forebay.core import registry
from forebay.core.plugin_names import warn_renamed
from forebay.core.spec import Tree
from forebay.errors import PipelineError
from forebay.pipeline.argument_checks import check_count, check_error_limit, check_number, check_transform_options
from forebay.pipeline.batch_methods import BatchMethods
from forebay.pipeline.cache_methods import CacheMethods
from forebay.pipeline.familiar_words import (
    accept_familiar_arguments,
    refuse_index,
    refuse_keras,
    refuse_several_parameters,
    refuse_unknown_options,
    reject_attribute,
)
from forebay.pipeline.options import FeedOptions
from forebay.pipeline.overview import pipeline_card, pipeline_repr
from forebay.pipeline.pack_methods import PackMethods
from forebay.pipeline.ranks import detect_rank, refuse_undivided_rows
from forebay.sources.file_recipe import FileSourceRecipe
from forebay.sources.streams.batches import BatchStream
from forebay.transforms.augmentations import Augmentation
from forebay.transforms.ops import Cast, Map, OneHot, Scale, Transform

if TYPE_CHECKING:  # the feed is in a higher layer; only its name is needed here
    from forebay.feed.feed import Feed

__all__ = ["Pipeline"]

_USER_ATTRIBUTES = {"class_names", "specs", "structure"}  # tab completion hides the other attributes, which feeds read


@dataclass(frozen=True, slots=True)
class Pipeline(BatchMethods, CacheMethods, PackMethods):
    """A description of rows and batches. Each method returns a new pipeline.

    A pipeline owns no thread and no buffer; `feed()` starts the work. Before `batch()`, `map`, `repeat` and `take`
    apply to rows; after it, they apply to batches.

    Examples:
        >>> import numpy as np, forebay as fb
        >>> pipeline = fb.from_arrays(np.arange(10)).shuffle(seed=1).batch(4)
        >>> [len(batch) for batch in pipeline.feed("numpy")]
        [4, 4, 2]
    """

    @property
    def opening(self) -> FileSourceRecipe | None:
        """The old name of `file_recipe`."""
        warn_renamed("Pipeline", {"opening": "file_recipe"})
        return self.file_recipe

    @accept_familiar_arguments
    def shard(self, index: int | Literal["auto"], count: int | None = None) -> Self:
        """Keep every `count`-th row (or ready-made batch) of the order, beginning with number `index`.

        With `shard("auto")`, all ranks take the same number of steps. If a framework or a launcher reports several
        ranks, `feed()` refuses a pipeline without `shard()`. `shard(0, 1)` says that the rows are already divided, or
        that this process shall read all of them.

        Args:
            index: The number of this shard, from 0. `"auto"`: `feed()` detects the rank of this process from Ray Train,
                torch.distributed, torchrun, jax.distributed, TensorFlow's MultiWorkerMirroredStrategy, MPI or Slurm.
            count: The number of shards. Leave it out with `"auto"`.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> next(fb.from_arrays(np.arange(10)).shard(1, 4).batch(3).feed("numpy")).tolist()
            [1, 5, 9]
        """
        if self.shard_count > 1 or self.rank is not None:
            current = "by rank" if self.rank is not None else f"{self.shard_index} of {self.shard_count}"
            raise PipelineError(f"the pipeline is sharded already ({current}). Call shard() once.")
        if index == "auto" and count is None:
            return replace(self, rank="auto", has_shard=True)
        if isinstance(index, str) or count is None:
            raise PipelineError(f"shard({index!r}, {count!r}): use shard(index, count), or shard('auto') alone.")
        count, index = check_count(count, "shard(count={})"), check_number(index, "shard(index={})")
        if not 0 <= index < count:
            raise PipelineError(f"shard({index}, {count}): pass an index from 0 to {count - 1}.")
        return replace(self, shard_index=index, shard_count=count, has_shard=True)

    @accept_familiar_arguments
    def map(
        self,
        function: Callable[..., Tree] | Transform,
        *,
        where: str = "thread",
        seed: int | None = None,
        workers: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: float | None = None,
    ) -> Self:
        """Call a function on every row (before `batch()`) or on every batch (after it).

        A function with a parameter `rng` receives a NumPy random generator. Before `batch()`, the random numbers depend
        only on `seed`, the epoch, the row and the place of the map in the pipeline. They do not change with the batch
        size, the shards, the workers, `where` or a resume. After `batch()`, they also depend on the batch size and the
        shards. The function must not keep the generator: Forebay uses the same object for the next row.

        When the feed starts, Forebay calls the function for the first batch, to infer the shapes and dtypes of its
        result (except on the device). Forebay may also call the function for batches that the consumer never takes.

        Args:
            function: A function of a row or a batch, or a transform such as `fb.scale(...)`.
            where: Where the function runs. `"thread"`: worker threads, for NumPy code, which releases the GIL.
                `"process"`: worker processes, for pure Python code. `"ray"`: workers on a Ray cluster, for more CPU
                time than this machine has. `"device"`: the device of the feed, on batches of the framework's arrays.
                Without a GPU, the framework runs the function on the CPU.
            seed: The seed of `rng`; by default the seed of `shuffle`.
            workers: Upper limit of the number of processes or Ray workers.
            on_error: `"raise"` ends the feed if the function raises an exception. With `"skip"`, the result for the
                nearest good row of the same batch replaces the missing result. Of two equally near rows, Forebay takes
                the earlier. `stats()["skipped_rows"]` has the number of replaced rows and the first errors. A
                MemoryError always ends the feed.
            max_errors: With `on_error="skip"`, the largest share of received rows that may be skipped, by default
                0.001; fewer than 1,000 received rows count as 1,000. The feed raises TransformError if more rows fail,
                or if a batch has no good row.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> pipeline = fb.from_arrays(np.arange(4)).batch(2).map(lambda x: x * 10)
            >>> [batch.tolist() for batch in pipeline.feed("numpy")]
            [[0, 10], [20, 30]]
            >>> pipeline = fb.from_arrays(np.arange(4)).map(lambda x: 12 // int(x), on_error="skip").batch(4)
            >>> [batch.tolist() for batch in pipeline.feed("numpy")]
            [[12, 12, 6, 4]]
        """
        by_row = self.batching is None and not isinstance(self.source, BatchStream)
        gets_rows = by_row and where != "device" and not isinstance(function, Cast | Scale | OneHot | Augmentation)
        error_limit = check_error_limit("map", on_error, max_errors, gets_rows=gets_rows)
        seed = self.seed if seed is None else check_number(seed, "map(seed={})")
        if isinstance(function, Augmentation):
            function = function.seeded(seed, self.source.cached_transforms)
        if isinstance(function, Cast | Scale | OneHot | Augmentation):
            check_transform_options(where, workers)
            return replace(self, transforms=(*self.transforms, function))
        if not callable(function):
            raise PipelineError(
                f"map() needs a function, got {function!r}. Pass one, such as map(lambda row: row * 2)."
            )
        paths = () if self.transforms else self.structure.paths
        refuse_several_parameters(function, paths, "row" if gets_rows else "batch")
        workers = None if workers is None else check_count(workers, "map(workers={})")
        transform = Map.of(function, where=where, by_row=by_row, seed=seed, workers=workers, max_errors=error_limit)
        transform = replace(transform, cached_before=self.source.cached_transforms)
        return replace(self, transforms=(*self.transforms, transform))

    @accept_familiar_arguments
    def feed(
        self,
        to: str = FeedOptions.to,
        *,
        device: Any = FeedOptions.device,
        resident: str = FeedOptions.resident,
        host_bytes: int | str = FeedOptions.host_bytes,
        device_bytes: int | str | None = FeedOptions.device_bytes,
        **fields: Any,
    ) -> "Feed":
        """Start a feed and return it.

        A feed is an iterable over batches, as arrays of a framework. Each iteration over the feed is the next epoch.
        Close the feed, or use it in a `with` statement.

        Args:
            to: The framework: `"numpy"` (the default), `"torch"`, `"jax"`, `"tensorflow"`, `"cupy"`, `"keras"` for
                `model.fit(feed)`, or `"loader"` for a PyTorch DataLoader that trainers accept. `"np"`, `"pytorch"` and
                `"tf"` work too.
            device: `"cpu"`, `"cuda"`, `"cuda:1"` or an engine. `"auto"`, the default, selects a GPU if the framework
                has one, and always the CPU for NumPy. With a tuple such as `("cuda:0", "cuda:1")`, a batch is a tuple
                with one part for each device. A `NamedSharding` of JAX or a `tf.distribute` strategy divides batches
                among several devices. To `"mps"`, `"xpu"`, `"rocm"`, `"tpu"` and other devices, the framework itself
                copies each batch.
            resident: Whether rows stay on the device: `"always"` or `"never"`. `"auto"`, the default, keeps rows there
                if they fit.
            host_bytes: Upper limit of the host memory that the feed allocates, not counting the source. The default is
                `"256MiB"`.
            device_bytes: Upper limit of the device memory. The default is a share of the free memory.
            **fields: For Keras only, the names of the fields for `x`, `y` and `sample_weight`.

        Examples:
            >>> import numpy as np, forebay as fb
            >>> with fb.from_arrays({"x": np.arange(4)}).batch(2).feed("numpy") as feed:
            ...     [batch["x"].tolist() for batch in feed]
            [[0, 1], [2, 3]]
        """
        to = registry.framework_name(to)
        options = FeedOptions(to, device, resident, host_bytes, device_bytes)
        if not self.has_shard and to != "loader":  # a loader divides the rows itself
            refuse_undivided_rows()
        pipeline = self._with_rank() if self.rank == "auto" else self
        has_several_devices = type(device) in (tuple, list)  # not isinstance: JAX's PartitionSpec may be a tuple
        if has_several_devices and registry.has_adapter(to):
            raise PipelineError(f"feed({to!r}) takes one device. Leave out device=, or pass one of {tuple(device)}.")
        adapter = registry.load_adapter(to)
        if adapter is not None and self.batching is not None and self.batching.sparse:
            raise PipelineError(f"feed({to!r}) takes dense batches. Leave out batch(sparse=True).")
        keywords = options.keywords_except_to()
        accepted = list(keywords) if adapter is None else list(inspect.signature(adapter).parameters)[1:]
        refuse_unknown_options(to, fields.keys() - set(accepted), accepted)
        if adapter is not None:
            return adapter(pipeline, **keywords, **fields)  # type: ignore[no-any-return]  # loaded by name
        if has_several_devices:
            return registry.load_multi_device_feed()(pipeline, options)  # type: ignore[no-any-return]
        return registry.load_feed()(pipeline, options)  # type: ignore[no-any-return]

    def __iter__(self) -> NoReturn:
        raise PipelineError("a pipeline only describes what to feed. Iterate pipeline.feed('numpy') or another feed.")

    def __getitem__(self, index: Any) -> NoReturn:
        refuse_index("a pipeline", index)

    def __len__(self) -> int:
        """Return the number of batches of this shard in an epoch; before `batch()`, of rows."""
        if self.rank == "auto":
            raise TypeError("this pipeline has no length before feed(), because of shard('auto'). Use len(feed).")
        count = self.epoch_batches
        if count is None:
            raise TypeError(
                "this pipeline has no length: its source is a stream, or it repeats without end. "
                "Count the batches in the loop."
            )
        return count

    def __repr__(self) -> str:
        return pipeline_repr(self)

    def _repr_html_(self) -> str:
        return pipeline_card(self)

    def __bool__(self) -> bool:
        return True  # otherwise Python would call __len__, which may return 0 or raise TypeError

    def __format__(self, format_spec: str) -> str:
        refuse_keras("a pipeline", sys._getframe(1))
        return format(str(self), format_spec)

    def __dir__(self) -> list[str]:
        """Return the names for tab completion: methods, and the attributes for users."""
        kind = type(self)
        return [
            name for name in object.__dir__(self) if name in _USER_ATTRIBUTES or callable(getattr(kind, name, None))
        ]

    if not TYPE_CHECKING:  # with this method, type checkers would report no missing attribute

        def __getattr__(self, name: str) -> Any:
            return reject_attribute(self, name, "a pipeline")

    def _with_rank(self) -> Self:
        rank = detect_rank()
        return replace(self, rank=rank, shard_index=rank.index, shard_count=rank.count)
