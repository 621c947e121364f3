"""Comparison of a user's `spec=` with the content of a file."""

from collections.abc import Iterable, Sequence

from forebay.core.spec import ArraySpec, Structure, Tree, as_specs
from forebay.errors import SpecError
from forebay.sources.files.mapped import PathName

__all__ = ["describe_leaves", "match_spec"]


def match_spec(path: PathName, specs: Sequence[ArraySpec], structure: Structure, spec: Tree | None) -> Structure:
    """Return the structure of `spec`, or the structure of the file if `spec` is None.

    Raise SpecError if `spec` does not match the file.
    """
    if spec is None:
        return structure
    wanted, wanted_structure = as_specs(spec)
    if wanted != tuple(specs):
        raise SpecError(
            f"{path} holds {describe_leaves(structure.paths, specs)}, but spec= says "
            f"{describe_leaves(wanted_structure.paths, wanted)}. "
            "Omit spec= to use the specs of the file, and convert with map()."
        )
    return wanted_structure


def describe_leaves(names: Iterable[str], specs: Iterable[ArraySpec]) -> str:
    """Return names and specs as text, such as `image uint8[28, 28], label int64[]`."""
    return ", ".join(f"{name} {spec}" for name, spec in zip(names, specs, strict=True))
