"""`from_images`, the function that begins a pipeline of images."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from forebay.core.skipped_rows import ErrorLimit
from forebay.core.spec import parse_nbytes
from forebay.errors import PipelineError, SpecError
from forebay.order.epoch_views import EpochViews
from forebay.order.orders import Sequential
from forebay.pipeline.argument_checks import check_error_limit, check_number
from forebay.pipeline.familiar_words import accept_familiar_arguments
from forebay.pipeline.pipeline import Pipeline
from forebay.transforms.resized_crop import RandomResizedCrop

if TYPE_CHECKING:  # only its name is needed here; at run time, only images need this module
    from forebay.sources.formats.image_options import ImageOptions

__all__ = ["from_images"]


@accept_familiar_arguments
def from_images(
    files: str | Path | Sequence[str | Path],
    *,
    size: tuple[int, int] | None = None,
    channels: int = 3,
    resize: Literal["stretch", "crop"] | RandomResizedCrop = "stretch",
    interpolation: Literal["bilinear", "nearest"] = "bilinear",
    short_side: int | None = None,
    column: str | None = None,
    label: str | Path | Callable[[Path], int | str] | None = None,
    class_names: Sequence[str] | None = None,
    decoder: str = "auto",
    max_held_bytes: int | str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    max_errors: float | None = None,
    seed: int | None = None,
) -> Pipeline:
    """Feed images as rows `{"image": uint8 array}`; with `label`, also `"label": int64`.

    The array has the shape (height, width, channels). Forebay applies the EXIF orientation. An animation becomes its
    first frame.

    Args:
        files: A path, a glob pattern, or a list of both. The files are images, or contain images: `.tar`, `.parquet`,
            `.arrow`, `.tfrecord`, `.h5` and LMDB.
        size: (height, width). Without it, all images must have the size of the first.
        channels: 1 (gray), 3 (RGB) or 4 (RGBA).
        resize: `"stretch"` ignores the aspect ratio. `"crop"` scales the image to cover `size` and crops at the centre.
            `fb.random_resized_crop(224)` crops a random box of the full image, a different one in each epoch. Leave
            out `size` then.
        interpolation: How to compute the pixels of a resized image. `"nearest"` copies pixels and makes no new values,
            so it fits masks of class numbers.
        short_side: With `resize="crop"`, scales the shorter side to this length before the crop, such as 256 for a size
            of (224, 224).
        column: For files that contain images, where the images are: the column (Parquet, Arrow), the extension
            (`.tar`), the feature (TFRecord), the dataset (`.h5`) or the beginning of the keys (LMDB). You may leave it
            out if only one column, extension, feature or dataset can hold images.
        label: `"folder"`, the path of a `.csv` or `.parquet` file with the columns `file` and `label`, or a function of
            the path that returns a number or a class name. For files that contain images, the name of the column of the
            labels. Without `label`, rows have no label.
        class_names: The names of the classes 0, 1, ...; images of other classes are left out. Without `class_names`,
            Forebay reads all classes and numbers them in sorted order.
        decoder: `"pillow"`; `"simplejpeg"`, which decodes JPEG files faster; or `"opencv"`, which also resizes them
            faster. `"nvjpeg"` decodes on an NVIDIA GPU. `"auto"` selects the fastest decoder that is installed and that
            the device of the feed supports.
        max_held_bytes: For files that contain images, the largest memory for decompressed parts (1 GiB by default).
        on_error: `"raise"` ends the feed at the first image that cannot be decoded. With `"skip"`, another row replaces
            the whole row of such an image, including its label: the nearest good row of the same batch.
            `stats()["skipped_rows"]` has the number of replaced rows, and the names and errors of the first of them.
        max_errors: With `on_error="skip"`, the largest share of received rows that may be skipped, by default 0.001.
            Fewer than 1,000 received rows count as 1,000.
        seed: With `resize=fb.random_resized_crop(...)`, another seed gives other boxes. The default is 0. The box of
            an image depends only on the seed, the epoch, the row number of the image and the number of all images.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (folder / name).mkdir()
        ...     Image.new("RGB", (50, 40)).save(folder / name / "1.jpg")
        >>> pipeline = from_images(folder / "*" / "*.jpg", size=(32, 32), label="folder").batch(2)
        >>> pipeline.class_names
        ('cat', 'dog')
        >>> [(batch["image"].shape, batch["label"].tolist()) for batch in pipeline.feed("numpy")]
        [((2, 32, 32, 3), [0, 1])]
        >>> _ = (folder / "cat" / "2.jpg").write_bytes(b"damaged")
        >>> files = folder / "*" / "*.jpg"
        >>> pipeline = from_images(files, size=(32, 32), label="folder", on_error="skip").batch(3)
        >>> with pipeline.feed("numpy") as feed:
        ...     [batch["label"].tolist() for batch in feed], feed.stats()["skipped_rows"]["first"][0]["row"]
        ([[0, 0, 1]], 1)
    """
    # Imported here because only images need Pillow.
    from forebay.sources.formats.images import ImageColumns, open_labelled_images

    files = files if isinstance(files, str | Path) else list(files)
    options = _image_options(size, channels, resize, short_side, interpolation)
    max_held_nbytes = None if max_held_bytes is None else parse_nbytes(max_held_bytes, "max_held_bytes")
    share = check_error_limit("from_images", on_error, max_errors)
    error_limit = None if share is None else ErrorLimit("from_images", share)
    image_columns = ImageColumns(column, label, class_names, max_held_nbytes, error_limit)
    source = open_labelled_images(files, options, image_columns, decoder)
    if options.boxes is not None:
        order = EpochViews(
            source.image_count, source.views, 0 if seed is None else check_number(seed, "from_images(seed={})")
        )
        return Pipeline(source, order)
    if seed is not None:
        raise PipelineError(
            f"from_images(seed={seed!r}) selects the boxes of resize=fb.random_resized_crop(...). To shuffle images, "
            "write from_images(...).shuffle(seed=0)."
        )
    return Pipeline(source, Sequential(source.image_count))


def _image_options(size: Any, channels: Any, resize: Any, short_side: Any, interpolation: Any) -> "ImageOptions":
    from forebay.sources.formats.image_options import ImageOptions
    from forebay.sources.formats.random_boxes import RandomBoxes

    boxes = None
    if isinstance(resize, RandomResizedCrop):
        boxes, size, resize = RandomBoxes(resize.scale, resize.ratio), _crop_size(resize, size), "stretch"
    return ImageOptions(size, channels, resize, True, short_side, boxes, interpolation)


def _crop_size(crop: RandomResizedCrop, size: Any) -> tuple[int, int]:
    """Return the size of the crops, which is that of all decoded images.

    Raise SpecError if `size` is another size, or if the crop names a field other than the image.
    """
    if size is not None and size != crop.size:
        raise SpecError(f"from_images(size={size!r}) and resize={crop} have different sizes. Leave out size=.")
    if crop.fields not in (None, ("image",)):
        raise SpecError(f"from_images() crops the field 'image', but resize= names {crop.fields}. Leave out fields=.")
    return crop.size
