"""Make `examples/vision/captcha_ocr.py` of keras-team/keras-io run offline.

Random images, with the letters and the digit of a solution as file names.
"""

from pathlib import Path

from tests.wild.edits import call_instead
from tests.wild.made_up import write_image

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "2", "img_width": "80", "img_height": "24"}
STEP: int | str = "fit"
CHANGES = [call_instead("tile", "tf.tile")]


def prepare(folder: Path) -> None:
    for index in range(190):
        letters = "".join(chr(ord("a") + (index * step) % 19) for step in (1, 3, 5, 7))
        write_image(folder / "captcha_images_v2" / f"{letters}{index % 10}.png", 80, 24, index)
