"""The encoded images of a source: image files, or images inside other files."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from forebay.core.chunk_policy import ChunkPolicy, ShuffleBlocks
from forebay.core.decision import Decision
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.files.held_budget import HeldBudget
from forebay.sources.files.mapped import closed_error, validate_file
from forebay.sources.files.part_cache import PartCache
from forebay.sources.files.paths import stamp_files
from forebay.sources.formats.encoded_reader import read_small_file
from forebay.sources.formats.image_decode import EncodedImage
from forebay.sources.formats.image_labels import ImageLabel, find_file_labels, parse_numbers, validate_label

__all__ = ["ContainedImages", "ContainerOptions", "ImageContainer", "ImageFiles", "ImageRows", "read_name_labels"]


class ImageRows(ABC):
    """The encoded images of a source, one per row. Several threads may read them."""

    shuffle_blocks: ShuffleBlocks | None = None  # blocks for a shuffle; None if it may read rows in any order
    decisions: Sequence[Decision] = ()  # how the images are read, for `explain()`

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def describe(self, number: int) -> str:
        """Return the name of image `number` in error messages."""

    @abstractmethod
    def read(self, number: int) -> EncodedImage:
        """Return the bytes of image `number`, or the path of its file."""

    def read_bytes(self, number: int) -> bytes | None:
        """Return the bytes of image `number` for a decoder on a device.

        Return None for an image that the device must not decode, such as a huge file. The host then calls `read`, and
        decodes the image or raises an error.
        """
        encoded = self.read(number)
        return encoded if isinstance(encoded, bytes) else None

    @abstractmethod
    def read_labels(self, label: ImageLabel) -> tuple[list[Any], tuple[str, ...]]:
        """Return the label of each image, and the class names that the files store.

        A label is an integer or a class name. The stored class names are those of the labels 0, 1, ...; the tuple is
        empty if the files store none.
        """

    @abstractmethod
    def keep(self, numbers: Sequence[int]) -> None:
        """Remove all images except those with these numbers."""

    @abstractmethod
    def identify(self) -> Any:
        """Return values that differ if the images differ, for the key of a row cache."""

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory that decompressed parts of files occupy now."""
        return 0

    def close(self) -> None:
        """Release files and memory."""
        return


class ImageFiles(ImageRows):
    """Image files: one file is one row."""

    def __init__(self, paths: Sequence[Path]) -> None:
        validate_file(paths[0])
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def describe(self, number: int) -> str:
        return str(self._paths[number])

    def read(self, number: int) -> EncodedImage:
        path = self._paths[number]
        if not path.is_file():
            raise SourceChangedError(
                f"{path} is missing now, or is no longer a file. Create the pipeline again with files that exist."
            )
        return path

    def read_bytes(self, number: int) -> bytes | None:
        return read_small_file(self._paths[number])

    def read_labels(self, label: ImageLabel) -> tuple[list[Any], tuple[str, ...]]:
        return find_file_labels(self._paths, label), ()

    def keep(self, numbers: Sequence[int]) -> None:
        self._paths = [self._paths[number] for number in numbers]

    def identify(self) -> Any:
        return stamp_files(self._paths)


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """How to open files that contain images. All files of a source share the cache."""

    column: str | None  # the column that has the images; None if the file has only one column with images
    budget: HeldBudget  # for decompressed parts of files
    cache: PartCache[Any]  # decompressed parts of files

    @classmethod
    def of(cls, column: str | None, max_held_nbytes: int | None) -> "ContainerOptions":
        """Return the options for these arguments of `from_images`."""
        budget = HeldBudget.of(max_held_nbytes)
        return cls(column, budget, PartCache(budget.cached_nbytes))


class ImageContainer(ABC):
    """The encoded images inside one file, such as a Parquet file or a tar archive."""

    path: Path
    chunk_policy: ChunkPolicy = ChunkPolicy()  # rows that must be decompressed together
    held_nbytes: int = 0  # bytes of memory of a file that is decompressed as a whole

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def describe(self, number: int) -> str:
        """Return the name of image `number` in error messages."""

    @abstractmethod
    def read(self, number: int) -> bytes:
        """Return the bytes of image `number`."""

    @abstractmethod
    def read_labels(self, label: ImageLabel) -> Sequence[Any]:
        """Return each image's label: an integer, a class name, or an integer as text."""

    def read_class_names(self, label: ImageLabel) -> tuple[str, ...]:
        """Return the stored names of the labels 0, 1, ...; empty if there are none."""
        return ()

    def close(self) -> None:
        """Release the file."""
        return


class ContainedImages(ImageRows):
    """The images of several containers, one container after the other."""

    def __init__(self, containers: Sequence[ImageContainer], options: ContainerOptions) -> None:
        self._containers, self._options = list(containers), options
        self._paths = [container.path for container in containers]
        self._boundaries = [0, *accumulate(map(len, containers))]
        self._kept: Sequence[int] = range(self._boundaries[-1])
        policy = max((container.chunk_policy for container in containers), key=lambda policy: policy.rows)
        self.shuffle_blocks = policy.shuffle_blocks(len(self), options.budget.cached_nbytes)
        if policy.rows > 1:
            self.decisions = [policy.explain(len(self), self.shuffle_blocks)]

    def __len__(self) -> int:
        return len(self._kept)

    def read_labels(self, label: ImageLabel) -> tuple[list[Any], tuple[str, ...]]:
        labels = [value for container in self._containers for value in container.read_labels(label)]
        if callable(label) or label == "folder":
            return labels, ()
        names = self._read_class_names(label)
        labels = parse_numbers(labels)
        has_names = all(isinstance(value, int) and 0 <= value < len(names) for value in labels)
        return labels, names if has_names else ()

    def keep(self, numbers: Sequence[int]) -> None:
        self._kept = numbers

    def describe(self, number: int) -> str:
        container, position = self._locate(number)
        return container.describe(position)

    def read(self, number: int) -> bytes:
        container, position = self._locate(number)
        return container.read(position)

    def identify(self) -> Any:
        return stamp_files(self._paths), self._options.column, self._kept

    @property
    def held_nbytes(self) -> int:
        return self._options.cache.nbytes + sum(container.held_nbytes for container in self._containers)

    def close(self) -> None:
        containers, self._containers = self._containers, []
        for container in containers:
            container.close()
        self._options.cache.clear()

    def _read_class_names(self, label: ImageLabel) -> tuple[str, ...]:
        found = [container.read_class_names(label) for container in self._containers]
        for names, container in zip(found, self._containers, strict=True):
            if names != found[0]:
                raise SourceError(
                    f"{container.path} stores other class names than {self._paths[0]}. Write both files with the same "
                    "names, or open them in two pipelines."
                )
        return found[0]

    def _locate(self, number: int) -> tuple[ImageContainer, int]:
        """Return the container of image `number`, and the number of the image in it."""
        containers = self._containers
        if not containers:
            raise closed_error(self._paths[0])
        number = self._kept[number]
        index = bisect_right(self._boundaries, number) - 1
        return containers[index], number - self._boundaries[index]


def read_name_labels(label: ImageLabel, names: Sequence[str], read_texts: Callable[[str], Sequence[str]]) -> list[Any]:
    """Return the labels of images that have names, such as members of an archive.

    With the `label` "folder", the label of an image is the folder in its name. A function gets each name as a path. Any
    other `label`, such as the extension of members, is passed to `read_texts`, which returns the labels.
    """
    if callable(label):
        return [validate_label(name, label(Path(name))) for name in names]
    if label == "folder":
        return [_folder_of(name) for name in names]
    return list(read_texts(str(label)))


def _folder_of(name: str) -> str:
    folder = Path(name).parent.name
    if not folder:
        raise SourceError(f"{name!r} has no folder in its name. Pass a function of the name as label=.")
    return folder
