"""Images in LMDB files: one value is one row, in the order of the keys."""

import re
from pathlib import Path
from typing import Any

from forebay.errors import SourceError
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.image_decode import is_image
from forebay.sources.formats.image_labels import ImageLabel, decode_label
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer, read_name_labels
from forebay.sources.formats.lmdb_index import LmdbValue, scan_values

__all__ = ["LmdbImages"]

_MAX_LABEL_NBYTES = 1 << 16  # bytes; of a longer label, only this part is read, because `decode_label` refuses it
_NOT_DIGITS = re.compile(rb"[^0-9]*")
MAX_KINDS = 16  # kinds of keys that `_refuse_other_values` compares; keys of more kinds are probably names of files
_METADATA_PREFIX = b"__"  # beginning of keys such as `__len__`, whose values are not images


class LmdbImages(ImageContainer):
    """The images of one file: the values whose keys begin with `options.column`.

    Without a column, all values except metadata are images.

    With `column="image-"` and `label="label-"`, the label of the image with the key `image-7` is the value of the key
    `label-7`.
    """

    def __init__(self, path: Path, options: ContainerOptions) -> None:
        self.path, self._file = path, MappedFile(path)
        self._prefix = (options.column or "").encode()
        self._values = scan_values(self._file)
        self._images = [value for value in self._values if self._has_image(value)]
        if not self._images and self._values:
            raise SourceError(
                f"no key of {path} begins with {options.column!r}. Its first key is {self._values[0].key[:40]!r}. Pass "
                "the beginning of the keys of the images as column=."
            )
        if not self._prefix:
            self._refuse_other_values()

    def _refuse_other_values(self) -> None:
        """Raise SourceError if only some kinds of keys have images as their values.

        Keys such as `image-7` and `image-8` are of one kind: their bytes before the first digit are equal. This method
        examines the first value of each kind.
        """
        firsts: dict[bytes, LmdbValue] = {}
        for value in self._images:
            firsts.setdefault(_NOT_DIGITS.match(value.key)[0], value)  # type: ignore[index]  # matches any key
            if len(firsts) > MAX_KINDS:
                return
        kinds = {kind: is_image(self._file.read(value.offset, value.nbytes)) for kind, value in firsts.items()}
        if len(set(kinds.values())) == 2:
            image, other = (next(kind for kind, found in kinds.items() if found is wanted) for wanted in (True, False))
            raise SourceError(
                f"{self.path} has images, such as the value of {firsts[image].key[:40]!r}, and other values, such as "
                f"that of {firsts[other].key[:40]!r}. Pass the beginning of the keys of the images as column=, such as "
                f"column={image.decode('utf-8', 'replace')!r}."
            )

    def _has_image(self, value: LmdbValue) -> bool:
        if self._prefix:
            return value.key.startswith(self._prefix)
        return not value.key.startswith(_METADATA_PREFIX)

    def __len__(self) -> int:
        return len(self._images)

    def describe(self, number: int) -> str:
        return f"the value of {self._images[number].key[:100]!r} in {self.path}"

    def read(self, number: int) -> bytes:
        value = self._images[number]
        return self._file.read(value.offset, value.nbytes)

    def read_labels(self, label: ImageLabel) -> list[Any]:
        return read_name_labels(
            label, [value.key.decode("utf-8", "replace") for value in self._images], self._read_texts
        )

    def _read_texts(self, prefix: str) -> list[str]:
        """Return the label of each image as text.

        It is the value of the key of the image, in which `prefix` replaces `options.column`.
        """
        by_key = {value.key: value for value in self._values if value.key.startswith(prefix.encode())}
        texts = []
        for image in self._images:
            key = prefix.encode() + image.key[len(self._prefix) :]
            if key not in by_key:
                raise SourceError(
                    f"{self.path} has no key {key[:100]!r} with the label of {image.key[:100]!r}. Pass the beginning "
                    "of the keys of the labels as label=, and that of the images as column=."
                )
            value = by_key[key]
            data = self._file.read(value.offset, min(value.nbytes, _MAX_LABEL_NBYTES))
            texts.append(decode_label(f"{image.key[:100]!r} in {self.path}", data))
        return texts
