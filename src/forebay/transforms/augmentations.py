"""Augmentations of images: the base class, `fb.flip` and `fb.normalize`.

An augmentation draws its random parameters on the host, for each row. The pixels of the result depend only on the
pixels of the row and on these parameters. So the planner may run the pixel function on the host or on the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from forebay.core.array_ops import ArrayOps, NumpyArrayOps
from forebay.core.spec import Array, Structure
from forebay.errors import PipelineError, SpecError
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.ops import Map, Transform
from forebay.transforms.random_keys import draw_uniform

if TYPE_CHECKING:  # importing numpy.typing would double the import time of Forebay
    from numpy.typing import DTypeLike

__all__ = ["Augmentation", "Flip", "Normalize", "draws_by_row", "field_names", "flip", "normalize"]

CHANNELS = (1, 3, 4)
_CHANNELS_FIRST = "If a map moves the channels first, call it after this transform, or permute batches in the loop."
IMAGE_DTYPES = ("uint8", "float16", "float32")  # of the fields that an augmentation transforms by default
NUMPY_OPS = NumpyArrayOps()
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Augmentation(ABC):
    """A transform of images that draws random parameters for each row.

    An image is a row of shape (height, width, channels), or (height, width) in a field that the user names.
    """

    fields: tuple[str, ...] | None  # names of the fields to transform; None for all fields with images
    seed: int = 0
    where: str = "either"
    # Number of the transforms before `cache()`. It is added to the index of this transform, which seeds the random
    # numbers. So these numbers are the same as without a cache.
    cached_before: int = 0

    @property
    def uniform_count(self) -> int:
        """How many random numbers a row needs."""
        return 0

    @property
    def buffer_nbytes(self) -> int:
        """Bytes of buffers that a host thread needs for each value of one image."""
        return 0

    @property
    def changes_with_size(self) -> bool:
        """Whether padding at the edge of an image changes the results of its other pixels."""
        return True

    @abstractmethod
    def parameters(self, uniform: Array, shape: Sequence[int]) -> Array | None:
        """Return the parameters of each row as 32-bit numbers, or None without parameters.

        `uniform` has `uniform_count` random numbers in [0, 1) for each row. `shape` is that of an image.
        """

    @abstractmethod
    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        """Return the transformed images. Images have the axes row, height, width and channel."""

    def host_pixels(self, images: Array, parameters: Any) -> Array:
        """Compute `pixels` on the host. A subclass may override this by a faster method."""
        transformed: Array = self.pixels(NUMPY_OPS, images, parameters)
        return transformed

    def check(self, shape: Sequence[int], dtype: str, name: str) -> None:
        """Raise SpecError for images that this augmentation cannot transform. `shape` is that of a row."""
        return

    def seeded(self, seed: int, cached_before: int) -> Self:
        """Return a copy with the values that seed its random numbers."""
        return replace(self, seed=seed, cached_before=cached_before)

    def apply(self, leaves: list[Any], structure: Structure, context: BatchContext) -> tuple[list[Any], Structure]:
        """Transform a batch on the host."""
        return self.apply_with(NUMPY_OPS, self.host_pixels, leaves, structure, context)

    def apply_with(
        self,
        ops: ArrayOps,
        pixels: Callable[[Any, Any], Any],
        leaves: list[Any],
        structure: Structure,
        context: BatchContext,
    ) -> tuple[list[Any], Structure]:
        """Transform a batch of a framework's arrays.

        `pixels` computes images from images and parameters. It is the method `host_pixels`, or the method `pixels` with
        its argument `ops`.
        """
        seeding = context.for_transform(context.transform + self.cached_before)
        uniform = draw_uniform(self.seed, seeding, self.uniform_count)
        chosen = self.chosen_fields([(leaf.shape[1:], ops.dtype_name(leaf)) for leaf in leaves], structure)
        transformed = [
            self._transform_leaf(ops, pixels, leaf, uniform) if is_chosen else leaf
            for leaf, is_chosen in zip(leaves, chosen, strict=True)
        ]
        return transformed, structure

    def _transform_leaf(self, ops: ArrayOps, pixels: Callable[[Any, Any], Any], leaf: Any, uniform: Array) -> Any:
        is_gray = len(leaf.shape) == 3  # (rows, height, width)
        parameters = self.parameters(uniform, tuple(leaf.shape[1:]))
        uploaded = None if parameters is None else ops.upload(parameters, leaf)
        images = pixels(leaf[..., None] if is_gray else leaf, uploaded)
        return images[..., 0] if is_gray else images

    def chosen_fields(self, rows: Sequence[tuple[Sequence[int], str]], structure: Structure) -> list[bool]:
        """Return for each leaf whether the augmentation transforms it.

        `rows` has shape and dtype of each leaf of a row. Raise SpecError if there are no images to transform, or if a
        named field has no images.
        """
        if self.fields is None:
            chosen = [dtype in IMAGE_DTYPES and len(shape) == 3 and shape[2] in CHANNELS for shape, dtype in rows]
        else:
            chosen = [name in self.fields for name in structure.paths]
        unknown = [name for name in self.fields or () if name not in structure.paths]
        known = ", ".join(
            f"{name!r} {dtype}{tuple(shape)}" for name, (shape, dtype) in zip(structure.paths, rows, strict=True)
        )
        if unknown:
            raise SpecError(f"{self} names {unknown[0]!r}, but the fields are {known}. Correct the name.")
        if not any(chosen):
            raise SpecError(
                f"{self} finds no images: the fields are {known}. It needs uint8, float16 or float32 rows of shape "
                "(height, width, channels) with 1, 3 or 4 channels. Name a field of shape (height, width) with fields=."
                f" {_CHANNELS_FIRST}"
            )
        for name, (shape, dtype), is_chosen in zip(structure.paths, rows, chosen, strict=True):
            if is_chosen:
                self._check_field(shape, dtype, name)
        return chosen

    def _check_field(self, shape: Sequence[int | None], dtype: str, name: str) -> None:
        sizes = [size for size in shape if size is not None]
        if len(sizes) < len(shape):
            raise SpecError(
                f"{self} needs images of one size, but {name!r} is ragged. Pass pad= instead of ragged=, or name other "
                "fields with fields=."
            )
        if len(sizes) not in (2, 3) or (len(sizes) == 3 and sizes[2] not in CHANNELS) or 0 in sizes:
            raise SpecError(
                f"{self} needs images of shape (height, width, channels) with 1, 3 or 4 channels, or (height, width), "
                f"but rows of {name!r} have the shape {tuple(shape)}. Transpose them first, or name "
                f"other fields. {_CHANNELS_FIRST}"
            )
        self.check(sizes, dtype, name)

    def _refuse_dtype(self, dtype: str, name: str) -> None:
        if dtype not in IMAGE_DTYPES:
            raise SpecError(
                f"{self} needs images of dtype {', '.join(IMAGE_DTYPES)}, but {name!r} is {dtype}. Convert it with "
                "fb.cast before this transform."
            )


@dataclass(frozen=True, slots=True)
class Flip(Augmentation):
    """Mirrors images at random."""

    horizontal: float = 0.5  # probability that left and right are swapped
    vertical: float = 0.0

    @property
    def uniform_count(self) -> int:
        return 2

    def parameters(self, uniform: Array, shape: Sequence[int]) -> Array:
        """Return for each row whether to swap left and right, and top and bottom."""
        return (uniform < (self.horizontal, self.vertical)).astype(np.int32)

    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        for column, axis, probability in ((0, 2, self.horizontal), (1, 1, self.vertical)):
            if probability > 0:
                is_flipped = parameters[:, column, None, None, None] > 0
                images = ops.where(is_flipped, ops.flip(images, axis), images)
        return images

    def host_pixels(self, images: Array, parameters: Array) -> Array:
        flipped = images.copy()
        for row, (horizontal, vertical) in enumerate(parameters.tolist()):
            if horizontal or vertical:
                flipped[row] = images[row, :: -1 if vertical else 1, :: -1 if horizontal else 1]
        return flipped

    def __str__(self) -> str:
        return f"flip(horizontal={self.horizontal:.4g}, vertical={self.vertical:.4g})"


@dataclass(frozen=True, slots=True)
class Normalize(Augmentation):
    """Computes (x - mean) / std, for uint8 with x / 255 instead of x."""

    mean: tuple[float, ...] = (0.0,)  # one value for each channel, or one value for all channels
    std: tuple[float, ...] = (1.0,)  # one value for each channel, or one value for all channels
    dtype: np.dtype[Any] = FLOAT32

    @property
    def changes_with_size(self) -> bool:
        return False

    def parameters(self, uniform: Array, shape: Sequence[int]) -> None:
        """Return None, because mean and std are the same for all rows."""
        return

    def pixels(self, ops: ArrayOps, images: Any, parameters: Any) -> Any:
        factor, offset = self._factor_and_offset(ops.dtype_name(images), images.shape[3])
        scaled = ops.to_float(images) * ops.upload(factor, images) + ops.upload(offset, images)
        return ops.cast(scaled, self.dtype)

    def host_pixels(self, images: Array, parameters: Any) -> Array:
        rows, height, width, channels = images.shape
        factor, offset = self._factor_and_offset(str(images.dtype), channels)
        # Join width and channels to one axis, because NumPy is several times faster if the last axis is long.
        lines = images.reshape(rows * height, width * channels)
        scaled = np.multiply(lines, np.tile(factor, width), dtype=np.float32, casting="unsafe")
        scaled += np.tile(offset, width)
        normalized: Array = scaled.reshape(images.shape).astype(self.dtype, copy=False)
        return normalized

    def check(self, shape: Sequence[int], dtype: str, name: str) -> None:
        channels = shape[2] if len(shape) == 3 else 1
        for option, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise SpecError(
                    f"normalize({option}=...) has {len(values)} values, but {name!r} has {channels} channels. Pass one "
                    "value for each channel, or one value for all channels."
                )
        if np.dtype(dtype).kind not in "iuf":
            raise SpecError(f"normalize needs numbers, but {name!r} is {dtype}. Convert it with fb.cast first.")
        if dtype == "uint8" and max(*self.mean, *self.std) > 1:
            parts = [(values, 255 if max(values) > 1 else 1) for values in (self.mean, self.std)]
            mean, std = (", ".join(f"{value / scale:.3g}" for value in values) for values, scale in parts)
            raise SpecError(
                f"{self} has values of the scale 0 to 255, but it divides the uint8 images of {name!r} by 255 first: "
                f"(x / 255 - mean) / std. Divide the values by 255 too: mean=({mean}), std=({std})."
            )

    def _factor_and_offset(self, dtype: str, channels: int) -> tuple[Array, Array]:
        """Return two float32 numbers for each channel: the result is pixel * factor + offset."""
        mean = np.broadcast_to(np.asarray(self.mean), channels)
        std = np.broadcast_to(np.asarray(self.std), channels)
        factor = 1 / (std * (255 if dtype == "uint8" else 1))
        return factor.astype(np.float32), (-mean / std).astype(np.float32)

    def __str__(self) -> str:
        mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (self.mean, self.std))
        return f"normalize(mean=({mean}), std=({std}){'' if self.dtype == np.float32 else f', {self.dtype}'})"


def flip(horizontal: float = 0.5, vertical: float = 0.0, *, fields: str | Sequence[str] | None = None) -> Flip:
    """Return a transform that mirrors each image at random.

    Each row has its own random numbers, which do not change with the batch size, the shards, the workers, the device or
    a resume.

    Args:
        horizontal: The probability that left and right are swapped.
        vertical: The probability that top and bottom are swapped.
        fields: The names of the fields with images; by default all uint8, float16 and float32 rows of shape (height,
            width, channels).

    Examples:
        >>> import numpy as np, forebay as fb
        >>> images = np.arange(6, dtype=np.uint8).reshape(2, 1, 3, 1)
        >>> pipeline = fb.from_arrays({"image": images}).map(fb.flip(1.0)).batch(2)
        >>> next(pipeline.feed("numpy"))["image"][:, 0, :, 0].tolist()
        [[2, 1, 0], [5, 4, 3]]
    """
    for name, value in (("horizontal", horizontal), ("vertical", vertical)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise PipelineError(f"flip({name}={value!r}): pass a probability between 0 and 1.")
    return Flip(field_names(fields, "flip"), horizontal=float(horizontal), vertical=float(vertical))


def normalize(
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    dtype: "DTypeLike" = "float32",
    fields: str | Sequence[str] | None = None,
) -> Normalize:
    """Return a transform that subtracts a mean and divides by a standard deviation.

    It computes (x / 255 - mean) / std for uint8, and (x - mean) / std for all other dtypes.

    Args:
        mean: One value for each channel, or one value for all. For uint8, values are at most 1.
        std: One value for each channel, or one value for all. For uint8, values are at most 1.
        dtype: The float dtype of the result.
        fields: The names of the fields with images; by default all uint8, float16 and float32 rows of shape (height,
            width, channels).

    Examples:
        >>> import numpy as np, forebay as fb
        >>> pipeline = fb.from_arrays(np.full((1, 2, 2, 3), 255, np.uint8)).map(fb.normalize(0.5, 0.25)).batch(1)
        >>> next(pipeline.feed("numpy"))[0, 0, 0].tolist()
        [2.0, 2.0, 2.0]
    """
    means, stds = _as_floats(mean, "mean"), _as_floats(std, "std")
    if not all(value > 0 for value in stds):
        raise PipelineError(f"normalize(std={std!r}): pass numbers above 0.")
    try:
        output = np.dtype(dtype)
    except TypeError:
        raise SpecError(f"{dtype!r} is not a dtype. Pass for example 'float32'.") from None
    if output.kind != "f":
        raise PipelineError(f"normalize(dtype={dtype!r}) would lose fractions. Pass 'float32' or 'float16'.")
    return Normalize(field_names(fields, "normalize"), mean=means, std=stds, dtype=output)


def draws_by_row(transform: Transform) -> bool:
    """Return whether a transform draws random numbers for each row."""
    if isinstance(transform, Augmentation):
        return transform.uniform_count > 0
    return isinstance(transform, Map) and transform.draws_by_row


def field_names(fields: Any, function: str) -> tuple[str, ...] | None:
    """Return the argument `fields` as a tuple, or raise PipelineError if it has no names."""
    if fields is None:
        return None
    names = (fields,) if isinstance(fields, str) else tuple(fields) if isinstance(fields, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise PipelineError(f"{function}(fields={fields!r}): pass the name of a field, or a list of names.")
    return names


def _as_floats(values: Any, name: str) -> tuple[float, ...]:
    try:
        floats = tuple(float(value) for value in np.atleast_1d(np.asarray(values, dtype=np.float64)))
    except (TypeError, ValueError):
        floats = ()
    if not floats or not all(map(np.isfinite, floats)):
        raise PipelineError(f"normalize({name}={values!r}): pass one number for each channel, or one for all channels.")
    return floats
