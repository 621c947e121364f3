"""Make `10-ColorBot/main.py` of dragen1860/TensorFlow-2.x-Tutorials run offline.

Random names of colours.
"""

from pathlib import Path

from tests.wild.edits import call_instead, import_instead
from tests.wild.made_up import numbers, words

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "4"}
STEP: int | str = 42  # line of the loop or function whose body is one step
CHANGES = [import_instead("keras", "import keras")]
# (path in the repository, path in the folder in which the script runs)
FILES = [("10-ColorBot/utils.py", "utils.py"), ("10-ColorBot/model.py", "model.py")]


def prepare(folder: Path) -> None:
    module = folder / "utils.py"
    module.write_text(call_instead("string_split", "tf.compat.v1.string_split")(module.read_text()))
    (folder / "data").mkdir()
    for part, count in (("train", 1280), ("test", 128)):
        names = words(2 * count, count)
        colours = numbers(count).integers(0, 256, (count, 3)).tolist()
        pairs = zip(names[::2], names[1::2], colours, strict=True)
        rows = (f"{first} {second},{red},{green},{blue}\n" for first, second, (red, green, blue) in pairs)
        (folder / "data" / f"{part}.csv").write_text("name,red,green,blue\n" + "".join(rows))
