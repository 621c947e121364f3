"""Images in TFRecord files: one `tf.train.Example` is one row."""

from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import SourceError
from forebay.sources.files.columns import validate_names
from forebay.sources.formats.image_decode import is_image
from forebay.sources.formats.image_labels import ImageLabel, decode_label
from forebay.sources.formats.image_rows import ContainerOptions, ImageContainer
from forebay.sources.formats.tf_example import Bytes, Feature, parse_example
from forebay.sources.formats.tfrecord import open_records, read_records, scan_records

__all__ = ["TfrecordImages"]


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
        """Return the label of each record, without reading the bytes of the images.

        So this does not verify the checksums of records. `read` verifies them, and raises an error for a record with a
        damaged label.
        """
        if not isinstance(label, str):
            raise SourceError(f"records of {self.path} have no path. Pass the name of a feature as label=.")
        memory, labels = memoryview(self._file.view()), list[Any]()
        for number, (start, stop) in enumerate(self._spans.tolist()):
            record = memory[start:stop]
            labels.append(self._read_label(number, record, self._parse(number, record), label))
        return labels

    def _read_label(self, number: int, record: Bytes, features: dict[str, Feature], label: str) -> Any:
        if label in features and features[label].kind == "int64":
            try:
                values = features[label].numbers(record)
            except ValueError as error:
                raise self._damage_error(number, error) from error
            if len(values) != 1:
                raise SourceError(
                    f"{label!r} in {self.describe(number)} has {len(values)} numbers. Choose a feature with one number "
                    "or one text as label=."
                )
            return int(values[0])
        return decode_label(self.describe(number), self._read_value(number, record, features, label))

    def _read_value(self, number: int, record: Bytes, features: dict[str, Feature], name: str) -> bytes:
        if name not in features:
            validate_names(self.describe(number), "feature", [name], sorted(features))
        feature = features[name]
        if feature.kind != "bytes" or len(feature.spans) != 1:
            raise SourceError(
                f"{name!r} in {self.describe(number)} has {len(feature.spans)} values of type {feature.kind}. Choose a "
                "feature with one image as column=, and a feature with one number or text as label=."
            )
        return bytes(record[slice(*feature.spans[0])])

    def _find_feature(self, record: Bytes, features: dict[str, Feature]) -> str:
        found = [
            name
            for name, feature in sorted(features.items())
            if feature.kind == "bytes" and len(feature.spans) == 1 and is_image(bytes(record[slice(*feature.spans[0])]))
        ]
        if len(found) != 1:
            raise SourceError(
                f"{self.path} has {len(found)} features with images. Its features: "
                f"{', '.join(map(repr, sorted(features)))}. Pass the name of the feature with the images as column=."
            )
        return found[0]

    def _read_record(self, number: int) -> tuple[Bytes, dict[str, Feature]]:
        (record,) = read_records(self._file, np.asarray([number]), self._spans[number : number + 1])
        return record, self._parse(number, record)

    def _parse(self, number: int, record: Bytes) -> dict[str, Feature]:
        try:
            return parse_example(record)
        except ValueError as error:
            raise self._damage_error(number, error) from error

    def _damage_error(self, number: int, error: ValueError) -> SourceError:
        return SourceError(
            f"{self.describe(number)} is not a tf.train.Example: {error}. Write or download the file again."
        )
