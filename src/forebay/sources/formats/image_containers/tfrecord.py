"""Images in TFRecord files: one `tf.train.Example` is one row."""

from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import SourceError
from forebay.sources.files.columns import validate_names
from forebay.sources.formats.image_labels import ImageLabel, parse_numbers
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer
from forebay.sources.formats.tf_example import Bytes, Feature, parse_example
from forebay.sources.formats.tfrecord import open_records, read_records, scan_records

__all__ = ["TfrecordImages"]

# The first bytes of image formats: JPEG, PNG, WebP, GIF, BMP, TIFF.
_IMAGE_STARTS = (b"\xff\xd8", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*")


class TfrecordImages(ImageContainer):
    """The images of one file, in a feature of bytes."""

    def __init__(self, path: Path, options: ContainerOptions) -> None:
        self.path, self._file = path, open_records(path, options.budget.cached_nbytes)
        self.held_nbytes = self._file.held_nbytes
        self._spans = scan_records(self._file)
        self._feature = ""
        if len(self):
            record, features = self._read_record(0)
            if options.column is not None:
                validate_names(path, "feature", [options.column], sorted(features))
            self._feature = options.column or self._find_feature(record, features)

    def __len__(self) -> int:
        return len(self._spans)

    def describe(self, number: int) -> str:
        return f"record {number} of {self.path}"

    def read(self, number: int) -> bytes:
        record, features = self._read_record(number)
        return self._read_value(number, record, features, self._feature)

    def read_labels(self, label: ImageLabel) -> list[Any]:
        """Return the labels, after one pass over the file that skips the bytes of the images."""
        if not isinstance(label, str):
            raise SourceError(f"records of {self.path} have no path. Pass the name of a feature as label=.")
        memory, labels = memoryview(self._file.view()), []
        for number, (start, stop) in enumerate(self._spans.tolist()):
            record = memory[start:stop]
            labels.append(self._read_label(number, record, self._parse(number, record), label))
        return parse_numbers(labels)

    def _read_label(self, number: int, record: Bytes, features: dict[str, Feature], label: str) -> Any:
        if label in features and features[label].kind == "int64":
            values = features[label].numbers(record)
            if len(values) != 1:
                raise SourceError(f"{label!r} in {self.describe(number)} has {len(values)} numbers instead of one.")
            return int(values[0])
        return self._read_value(number, record, features, label).decode("utf-8", "replace")

    def _read_value(self, number: int, record: Bytes, features: dict[str, Feature], name: str) -> bytes:
        validate_names(self.describe(number), "feature", [name], sorted(features))
        feature = features[name]
        if feature.kind != "bytes" or len(feature.spans) != 1:
            raise SourceError(
                f"{name!r} in {self.describe(number)} has {len(feature.spans)} values of type {feature.kind}. It must "
                "have one value of bytes."
            )
        return bytes(record[slice(*feature.spans[0])])

    def _find_feature(self, record: Bytes, features: dict[str, Feature]) -> str:
        found = [
            name
            for name, feature in sorted(features.items())
            if feature.kind == "bytes"
            and len(feature.spans) == 1
            and bytes(record[slice(*feature.spans[0])]).startswith(_IMAGE_STARTS)
        ]
        if len(found) != 1:
            raise SourceError(
                f"{self.path} has {len(found)} features with images. It has {', '.join(map(repr, sorted(features)))}. "
                "Pass the name of one as column=."
            )
        return found[0]

    def _read_record(self, number: int) -> tuple[Bytes, dict[str, Feature]]:
        (record,) = read_records(self._file, np.asarray([number]), self._spans[number : number + 1])
        return record, self._parse(number, record)

    def _parse(self, number: int, record: Bytes) -> dict[str, Feature]:
        try:
            return parse_example(record)
        except ValueError as error:
            raise SourceError(f"{self.describe(number)} is not a tf.train.Example: {error}.") from error
