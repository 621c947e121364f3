"""A user's spec beside what a file holds."""

from collections.abc import Iterable, Sequence

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs
from forebay.errors import SpecError
from forebay.sources.files.mapped import PathName

__all__ = ["describe", "fit_spec"]


def fit_spec(path: PathName, specs: Sequence[ArraySpec], structure: Structure, spec: Tree | None) -> Structure:
    """The nest that rows come out in: the file's own, or the user's where one is given and fits."""
    if spec is None:
        return structure
    wanted, nest = as_specs(spec)
    if wanted != tuple(specs):
        raise SpecError(
            f"{path} holds {describe(structure.paths, specs)}, but spec= says {describe(nest.paths, wanted)}. "
            "Leave spec= out to take the file as it is, and convert with map()."
        )
    return nest


def describe(names: Iterable[str], specs: Iterable[ArraySpec]) -> str:
    """Leaves for people: `image uint8[28, 28], label int64[]`."""
    return ", ".join(f"{name} {spec}" for name, spec in zip(names, specs, strict=True))
