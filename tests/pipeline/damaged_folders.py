"""A folder with good and damaged images, and the rows that a feed delivers."""

import numpy as np
from PIL import Image

import forebay as fb

__all__ = [
    "BAD",
    "ROWS",
    "brighten",
    "files_of",
    "identity",
    "in_order",
    "make_folder",
    "open_images",
    "row_numbers_of",
    "replace_bad_rows",
]

ROWS = 40
BAD = frozenset({0, 5, 6, 17, 39})
NAMES = [f"{row:02}.png" for row in range(ROWS)]


def make_folder(folder, bad=BAD):
    """Write images whose first pixel is their number. Even and odd numbers have folders of their own."""
    for row in range(ROWS):
        parent = folder / ("even", "odd")[row % 2]
        parent.mkdir(exist_ok=True)
        Image.new("RGB", (6, 5), (row, row, row)).save(parent / f"{row:02}.png")
        if row in bad:
            (parent / f"{row:02}.png").write_bytes(b"damaged")
    return folder


def files_of(folder):
    return [folder / ("even", "odd")[row % 2] / name for row, name in enumerate(NAMES)]


def open_images(folder, max_errors=1.0, **options):
    options = {"size": (5, 6), "label": lambda path: int(path.stem), "max_errors": max_errors, **options}
    return fb.from_images(files_of(folder), on_error="skip", **options)


def replace_bad_rows(batch, bad=BAD):
    """Return the row numbers of a batch as a feed that skips must deliver them."""
    good = [place for place, row in enumerate(batch) if row not in bad]
    return [batch[min(good, key=lambda other: (abs(other - place), other))] for place in range(len(batch))]


def in_order(batch_rows, rows=ROWS):
    return [replace_bad_rows(range(start, min(start + batch_rows, rows))) for start in range(0, rows, batch_rows)]


def row_numbers_of(feed):
    """Return the row numbers of each batch. The pixels and the label of a row must agree."""
    batches = [{name: np.array(leaf) for name, leaf in batch.items()} for batch in feed]
    assert all((batch["image"][:, 0, 0, 0] == batch["label"]).all() for batch in batches)
    return [batch["label"].tolist() for batch in batches]


def identity(row):
    return row


def brighten(row):
    return {"image": row["image"] + 0, "label": row["label"]}
