"""Images in tar archives: one sample of the archive is one row.

A sample is a group of members with one name and different extensions, such as `1.jpg` and `1.cls` (`tar_index.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.errors import SourceError
from forebay.sources.files.columns import validate_names
from forebay.sources.formats.gzip_file import open_maybe_gzip
from forebay.sources.formats.image_labels import ImageLabel, decode_label
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer, read_name_labels
from forebay.sources.formats.tar_index import TarMember, list_samples
from forebay.sources.formats.webdataset import IMAGE_EXTENSIONS

__all__ = ["TarImages"]

_MAX_LABEL_NBYTES = 1 << 16  # bytes; of a longer label, only this part is read, because `decode_label` refuses it


class TarImages(ImageContainer):
    """The images of an archive. Samples without an image, such as readme files, are ignored."""

    def __init__(self, path: Path, options: ContainerOptions) -> None:
        self.path, self._file = path, open_maybe_gzip(path, options.budget.cached_nbytes)
        self.held_nbytes = self._file.held_nbytes
        column = options.column
        samples = list_samples(self._file)
        extensions = list(dict.fromkeys(extension for sample in samples for extension in sample.members))
        if column is not None:
            validate_names(path, "member", [column], extensions)
        names = [column] if column is not None else [name for name in extensions if _is_image(name)]
        self._samples = [sample for sample in samples if any(name in sample.members for name in names)]
        self._images = [_choose_image(path, sample.members, names) for sample in self._samples]

    def __len__(self) -> int:
        return len(self._images)

    def describe(self, number: int) -> str:
        return f"{self._images[number].name!r} in {self.path}"

    def read(self, number: int) -> bytes:
        member = self._images[number]
        return self._file.read(member.offset, member.nbytes)

    def read_labels(self, label: ImageLabel) -> list[Any]:
        return read_name_labels(label, [member.name for member in self._images], self._read_texts)

    def _read_texts(self, extension: str) -> list[str]:
        """Return the label of each image: the sample's member with this extension, as text."""
        texts = []
        for sample in self._samples:
            validate_names(
                f"sample {sample.key.lstrip('/')!r} in {self.path}", "member", [extension], [*sample.members]
            )
            member = sample.members[extension]
            data = self._file.read(member.offset, min(member.nbytes, _MAX_LABEL_NBYTES))
            texts.append(decode_label(f"{member.name!r} in {self.path}", data))
        return texts


def _is_image(extension: str) -> bool:
    return extension.rpartition(".")[2] in IMAGE_EXTENSIONS


def _choose_image(path: Path, members: dict[str, TarMember], names: Sequence[str]) -> TarMember:
    found = [name for name in names if name in members]
    if len(found) > 1:
        raise SourceError(
            f"samples of {path} have several images: {', '.join(map(repr, found))}. Pass one of them as column=."
        )
    return members[found[0]]
