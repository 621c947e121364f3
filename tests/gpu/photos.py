"""Writes the photos that the tests of images decode on a GPU."""

import numpy as np
from PIL import Image


def write_photos(folder):
    """Fill a folder with smooth images: several sizes, gray, rotated and progressive images, and one PNG file."""
    for number in range(120):
        height, width = (375, 500) if number % 3 else (200 + number, 640)
        y, x = np.mgrid[:height, :width]
        waves = np.stack([np.sin(x / 17 + number), np.cos(y / 15), np.sin((x + y) / 19)], axis=-1)
        photo = Image.fromarray((waves * 100 + 128).astype(np.uint8)).convert("L" if number % 10 == 7 else "RGB")
        exif = Image.Exif()
        exif[0x0112] = number % 8 + 1
        photo.save(folder / f"{number:03}.jpg", quality=92, exif=exif, progressive=number % 20 == 11)
    photo.save(folder / "120.jpg", "PNG")
    return folder
