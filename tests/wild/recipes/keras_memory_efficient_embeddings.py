"""Make `examples/keras_recipes/memory_efficient_embeddings.py` of keras-team/keras-io run offline.

Random ratings in the layout of MovieLens 1M, with as many users and films.
"""

from pathlib import Path
from zipfile import ZipFile

from tests.wild.edits import drop_call
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {}
STEP: int | str = "fit"
CHANGES = [drop_call("urlretrieve")]
USERS, FILMS, RATINGS = 6040, 3706, 40_000


def prepare(folder: Path) -> None:
    generator = numbers()
    users = generator.integers(0, USERS, RATINGS)
    films = (FILMS * generator.random(RATINGS) ** 2).astype(int)  # some films are popular
    users[:USERS], films[:FILMS] = range(USERS), range(FILMS)  # the size of the tables depends on these numbers
    rows = zip(users.tolist(), films.tolist(), generator.integers(1, 6, RATINGS).tolist(), strict=True)
    with ZipFile(folder / "movielens.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "".join(f"{u + 1}::{f + 1}::{r}::978300760\n" for u, f, r in rows))
