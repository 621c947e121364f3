"""Draw the scripts that are held back: they test the doctor after its development.

    python draw.py

reads candidates.json, a list of public training scripts in a fixed order, and writes corpus.json: the same list, which
also says whether a script is for development or held back. The draw depends on the seed and on the order of the
candidates only, so that a second run writes the same file. The draw takes place before any script runs, so that no
choice can depend on what a script does. Scripts of the later draws (ranking.json in second_draw, third_draw and
fourth_draw) stay in corpus.json.
"""

import json
import random
from pathlib import Path

SEED = 23
HELD_BACK = {("tensorflow", "keras"): 6, ("torch",): 5, ("jax",): 4}  # frameworks of a group -> number of drawn scripts
LATER_DRAWS = ("second draw", "third draw", "fourth draw")
FOLDER = Path(__file__).parent


def draw(candidates: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the candidates with their part, "develop" or "held back"."""
    generator = random.Random(SEED)
    drawn: set[str] = set()
    for frameworks, count in HELD_BACK.items():
        names = [candidate["name"] for candidate in candidates if candidate["framework"] in frameworks]
        drawn.update(generator.sample(names, count))
    return [candidate | {"part": "held back" if candidate["name"] in drawn else "develop"} for candidate in candidates]


def main() -> None:
    candidates = json.loads((FOLDER / "candidates.json").read_text())
    order = ["name", "repository", "commit", "path", "framework", "part", "data"]
    path = FOLDER / "corpus.json"
    later = [entry for entry in json.loads(path.read_text()) if entry["part"] in LATER_DRAWS]
    corpus = [{key: entry[key] for key in order} for entry in [*draw(candidates), *later]]
    path.write_text(json.dumps(corpus, indent=2) + "\n")


if __name__ == "__main__":
    main()
