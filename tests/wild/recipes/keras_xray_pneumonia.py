"""Make `examples/vision/xray_classification_with_tpus.py` of keras-team/keras-io run offline.

Random images of two classes in place of X-ray images, smaller in bytes than these.
"""

from pathlib import Path

from tests.wild.edits import set_literal, wrap_value
from tests.wild.made_up import write_photograph

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "10"}
STEP: int | str = "fit"
CHANGES = [
    *(
        set_literal(f"gs://download.tensorflow.org/data/ChestXRay2017/{name}", f'"{name}"')
        for name in ("train/images.tfrec", "train/paths.tfrec", "test/images.tfrec", "test/paths.tfrec")
    ),
    wrap_value("prediction", "", ".item()"),
]


def prepare(folder: Path) -> None:
    for number in range(200):
        write_photograph(folder / "photographs" / f"{number}.jpg", 640, 480, number)
    images = [file.read_bytes() for file in sorted((folder / "photographs").iterdir())]
    for part, count in (("train", 5232), ("test", 624)):
        (folder / part).mkdir()
        kinds = ["NORMAL" if number % 4 == 0 else "PNEUMONIA" for number in range(count)]
        _write_records(folder / part / "images.tfrec", [images[number % len(images)] for number in range(count)])
        _write_records(folder / part / "paths.tfrec", [f"{part}/{kind}/image.jpeg".encode() for kind in kinds])


def _write_records(path: Path, records: list[bytes]) -> None:
    import tensorflow as tf  # most recipes run without it

    with tf.io.TFRecordWriter(str(path)) as file:
        for record in records:
            file.write(record)
