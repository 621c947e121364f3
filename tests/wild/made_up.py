"""Made-up data in the layouts that public scripts read: random numbers, words and images."""

import gzip
import pickle
import random
import struct
import textwrap
from pathlib import Path

import numpy as np
from PIL import Image

LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Sources of modules that edited scripts import.
STORED = '''
    """Loads made-up data in place of downloads, without a check of their checksums."""

    import numpy as np


    def load(name, **options):
        """Return the arrays of a file in the form that keras.datasets returns."""
        with np.load(name, allow_pickle=True) as arrays:
            return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
'''
UNCHECKED_CIFAR = '''
    """CIFAR-10 of torchvision without the checksums of its files."""

    import torchvision


    class CIFAR10(torchvision.datasets.CIFAR10):
        train_list = [["data_batch_1", None]]
        test_list = [["test_batch", None]]
        meta = {"filename": "batches.meta", "key": "label_names", "md5": None}
'''
ENDING = '''
    """An environment that ends the training of scripts that run until the task is solved."""

    import gymnasium


    class Ending(gymnasium.Wrapper):
        """Give very large rewards after a number of episodes."""

        def __init__(self, env, episodes):
            super().__init__(env)
            self.left = episodes

        def reset(self, **options):
            self.left -= 1
            return self.env.reset(**options)

        def step(self, action):
            observation, reward, *rest = self.env.step(action)
            return observation, reward if self.left >= 0 else 1e6, *rest
'''
DISPLAY = '''
    """The function of IPython that notebooks call in their training loops."""


    def clear_output(wait=False):
        """A script has no output cell to clear."""
'''
IPYTHON = '''
    """Made-up module in place of IPython."""

    version_info = (9, 0)  # matplotlib reads the version of an imported IPython


    def get_ipython():
        """Return None, as IPython does outside of a notebook."""
'''


def write_module(folder: Path, name: str, text: str) -> None:
    """Write a module that edited scripts import."""
    (folder / f"{name}.py").write_text(textwrap.dedent(text).lstrip())


def write_display(folder: Path) -> None:
    """Write a package IPython, which converted notebooks import."""
    (folder / "IPython").mkdir()
    write_module(folder / "IPython", "__init__", IPYTHON)
    write_module(folder / "IPython", "display", DISPLAY)


def numbers(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def store_images(folder: Path, name: str, shape: tuple[int, ...], train: int, test: int) -> None:
    """Write the module `stored` and an archive of images with ten classes for it."""
    write_module(folder, "stored", STORED)
    column = (1,) if len(shape) == 3 else ()  # the labels of CIFAR-10 are a column
    np.savez(
        folder / name,
        x_train=numbers(0).integers(0, 256, (train, *shape), dtype=np.uint8),
        y_train=(np.arange(train) % 10).astype(np.uint8).reshape(-1, *column),
        x_test=numbers(1).integers(0, 256, (test, *shape), dtype=np.uint8),
        y_test=(np.arange(test) % 10).astype(np.uint8).reshape(-1, *column),
    )


def store_reviews(folder: Path, name: str, words: int, train: int, test: int) -> None:
    """Write the module `stored`, and an archive of word numbers like the IMDB reviews."""
    write_module(folder, "stored", STORED)
    generator = numbers()

    def reviews(count: int) -> np.ndarray:
        rows = np.empty(count, dtype=object)
        rows[:] = [generator.integers(3, words, generator.integers(60, 300)).tolist() for _ in range(count)]
        return rows

    np.savez(
        folder / name,
        x_train=reviews(train),
        y_train=generator.integers(0, 2, train),
        x_test=reviews(test),
        y_test=generator.integers(0, 2, test),
    )


def write_digits(folder: Path, train: int, test: int, *, compressed: bool = False) -> None:
    """Write the four files of MNIST or Fashion-MNIST: 28 by 28 pixels, ten classes."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix, opener = (".gz", gzip.open) if compressed else ("", open)
    for part, count in (("train", train), ("t10k", test)):
        images = numbers(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        with opener(folder / f"{part}-images-idx3-ubyte{suffix}", "wb") as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        with opener(folder / f"{part}-labels-idx1-ubyte{suffix}", "wb") as file:
            file.write(struct.pack(">II", 2049, count) + (np.arange(count) % 10).astype(np.uint8).tobytes())


def write_cifar(folder: Path, train: int, test: int) -> None:
    """Write the module `unchecked` into the folder and the files of CIFAR-10 into its folder `data`."""
    write_module(folder, "unchecked", UNCHECKED_CIFAR)
    base = folder / "data" / "cifar-10-batches-py"
    base.mkdir(parents=True, exist_ok=True)
    for name, count in (("data_batch_1", train), ("test_batch", test)):
        pixels = numbers(count).integers(0, 256, (count, 3072), dtype=np.uint8)
        (base / name).write_bytes(pickle.dumps({"data": pixels, "labels": [index % 10 for index in range(count)]}))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {index}" for index in range(10)]}))


def words(count: int, seed: int = 0) -> list[str]:
    """Return random words of two to nine letters."""
    generator = random.Random(seed)
    return ["".join(generator.choices(LETTERS, k=generator.randint(2, 9))) for _ in range(count)]


def text(characters: int, seed: int = 0) -> str:
    """Return lines of ten words from a vocabulary of 500 words."""
    generator = random.Random(seed)
    vocabulary = words(500, seed)
    lines: list[str] = []
    while sum(map(len, lines)) < characters:
        lines.append(" ".join(generator.choices(vocabulary, k=10)) + ".\n")
    return "".join(lines)


def write_image(path: Path, width: int, height: int, seed: int = 0) -> None:
    """Write a random colour image; the suffix of the path selects the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)


def write_photograph(path: Path, width: int, height: int, seed: int = 0) -> None:
    """Write a colour image of smooth areas and little noise, which compresses like a photograph."""
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = numbers(seed)
    areas = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((width, height))
    noise = generator.integers(-12, 13, (height, width, 1))
    Image.fromarray((np.asarray(areas) + noise).clip(0, 255).astype(np.uint8)).save(path)


def write_transactions(path: Path, rows: int, distinct: int = 20_000) -> None:
    """Write 30 columns of numbers and a class, which is rarely 1. The rows repeat after `distinct` rows."""
    generator = numbers()
    lines = [
        ",".join([*(f"{value:.9f}" for value in row), f'"{int(index % 500 == 0)}"\n'])
        for index, row in enumerate(generator.normal(size=(min(rows, distinct), 30)))
    ]
    header = ",".join(f'"V{column}"' for column in range(30)) + ',"Class"\n'
    path.write_text(header + "".join(lines[index % distinct] for index in range(rows)))


def write_series(path: Path, rows: int, columns: int) -> None:
    """Write hours and columns of random walks; the last column is called OT."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hours = np.arange(rows).astype("datetime64[h]").astype(str)
    values = numbers().normal(size=(rows, columns)).cumsum(axis=0)
    names = ["date", *(f"column{index}" for index in range(columns - 1)), "OT"]
    lines = (",".join([hour, *(f"{value:.4f}" for value in row)]) for hour, row in zip(hours, values, strict=True))
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
