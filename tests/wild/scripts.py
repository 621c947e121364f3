"""The public scripts, and how a recipe makes one of them run offline."""

import importlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.wild.checkouts import find_checkout
from tests.wild.edits import Edit, mark_steps, set_values

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Recipe:
    """The constants of `recipes/NAME.py`."""

    prepare: Callable[[Path], None]  # writes made-up data into the folder in which the script runs
    arguments: list[str]  # of the command
    environment: dict[str, str]  # of the command
    settings: dict[str, str]  # name in the script -> the literal that it gets, such as fewer epochs
    step: int | str  # line of the loop or function whose body is one step; "fit" for Keras
    changes: list[Edit] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)  # (path in the repository, path in the folder)


@dataclass(frozen=True, slots=True)
class Script:
    """A script of the corpus and its recipe."""

    name: str
    repository: str
    commit: str
    path: str
    framework: str
    recipe: Recipe

    @property
    def file_name(self) -> str:
        """Name of the script in the folder; a notebook becomes a script."""
        return Path(self.path).with_suffix(".py").name

    def prepare(self, checkouts: Path, folder: Path, *, edits: tuple[Edit, ...] = (), is_marked: bool = False) -> None:
        """Write the script, the files that it imports, and made-up data into an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        checkout = find_checkout(checkouts, self.repository, self.commit)
        for source, target in self.recipe.files:
            for path in checkout.list(source):
                file = folder / target / Path(path).relative_to(source)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(checkout.read(path))
        text = checkout.read(self.path).decode()
        if self.path.endswith(".ipynb"):
            text = convert_notebook(text)
        for edit in (*self._recipe_edits(is_marked), *edits):
            text = edit(text)
        (folder / self.file_name).write_text(text)
        shutil.copy(FOLDER / "step_clock.py", folder)
        self.recipe.prepare(folder)

    def _recipe_edits(self, is_marked: bool) -> list[Edit]:
        settings = [set_values({name: value}) for name, value in self.recipe.settings.items()]
        return [*([mark_steps(self.recipe.step)] if is_marked else []), *settings, *self.recipe.changes]


def convert_notebook(text: str) -> str:
    """Join the code cells of a notebook, and make comments of shell commands and magics.

    Like IPython, remove the indentation of a cell's first line from the lines of the cell.
    """
    cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n\n".join(_without_indentation(cell) for cell in cells).splitlines()
    return "\n".join(f"# {line}" if line.lstrip().startswith(("!", "%")) else line for line in lines) + "\n"


def load_scripts(names: list[str], part: str = "develop") -> list[Script]:
    """Return the named scripts of a part of the corpus; without names, all that have a recipe."""
    entries = {entry["name"]: entry for entry in json.loads((FOLDER / "corpus.json").read_text())}
    wanted = names or [name for name in entries if entries[name]["part"] == part and has_recipe(name)]
    for name in wanted:
        if name not in entries or entries[name]["part"] != part:
            raise ValueError(f"{name} is not in the part {part!r} of the corpus. Pass a name of this part.")
    return [_load_script(entries[name]) for name in wanted]


def has_recipe(name: str) -> bool:
    return (FOLDER / "recipes" / f"{name}.py").exists()


def load_cure(name: str) -> tuple[str, tuple[Edit, ...]] | None:
    """Return the rule and the edits of `cures/NAME.py`, or None if the script has no cure."""
    if not (FOLDER / "cures" / f"{name}.py").exists():
        return None
    module = importlib.import_module(f"tests.wild.cures.{name}")
    return module.RULE, tuple(module.EDITS)


def _without_indentation(cell: str) -> str:
    indentation = cell[: len(cell) - len(cell.lstrip(" \t"))]
    return "\n".join(line.removeprefix(indentation) for line in cell.split("\n"))


def _load_script(entry: dict[str, str]) -> Script:
    module = importlib.import_module(f"tests.wild.recipes.{entry['name']}")
    recipe = Recipe(
        module.prepare,
        module.ARGUMENTS,
        module.ENVIRONMENT,
        module.SETTINGS,
        module.STEP,
        getattr(module, "CHANGES", []),
        getattr(module, "FILES", []),
    )
    return Script(*(entry[key] for key in ("name", "repository", "commit", "path", "framework")), recipe)
