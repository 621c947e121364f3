"""Parts of an HDF5 file that are stored in other files.

The HDF5 library opens any file that a dataset or a link names, also a pipe or a device. So Forebay examines links and
the properties of datasets before the library uses them.
"""

from pathlib import Path
from typing import Any

import h5py

from forebay.errors import SourceError
from forebay.sources.files.external_files import external_file_error

__all__ = ["find_external_storage", "is_in_file", "open_group"]

_MAX_SOFT_LINKS = 16  # the limit of the HDF5 library; a longer chain is probably a cycle


def find_external_storage(dataset: Any) -> str:
    """Return a phrase about where a dataset is stored; empty for its own file."""
    if dataset.external:
        return f"stored in another file, {dataset.external[0][0]!r}"
    if dataset.is_virtual:
        return "a virtual dataset, which reads other datasets or files"
    return ""


def is_in_file(node: Any, h5_file: Any) -> bool:
    """Return whether a group or dataset is in this file, not behind an external link."""
    return bool(h5py.h5o.get_info(node.id).fileno == h5py.h5o.get_info(h5_file.id).fileno)


def open_group(path: Path, h5_file: Any, group: str, *, follow_external_links: bool) -> Any:
    """Return a group of a file.

    Raise SourceError if it is missing, or behind an external link that must not be followed.
    """
    if not follow_external_links:
        _validate_links(path, h5_file, group, _MAX_SOFT_LINKS)
    node = h5_file.get(group)
    if not isinstance(node, h5py.Group):
        raise SourceError(f"{path} has no group {group!r}. It has {', '.join(map(repr, h5_file)) or 'nothing'}.")
    return node


def _validate_links(path: Path, start: Any, name: str, soft_links_left: int) -> Any:
    """Follow the path `name` from the group `start`. Return the node, or None.

    Raise SourceError at an external link. Return None if the path does not exist.
    """
    node = start.file if name.startswith("/") else start
    for part in name.split("/"):
        if part in ("", ".") or not isinstance(node, h5py.Group):
            continue
        link = node.get(part, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise external_file_error(f"{part!r} in {path} is a link to another file, {link.filename!r}")
        if not isinstance(link, h5py.SoftLink):
            node = node.get(part)
        elif soft_links_left:
            node = _validate_links(path, node, link.path, soft_links_left - 1)
        else:
            raise SourceError(f"{part!r} in {path} is a cycle of links. Write or download the file again.")
    return node
