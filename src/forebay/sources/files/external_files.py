"""`external_files=`: whether Forebay reads data in other files to which a file refers.

By default it does not, because a file from an untrusted source could name any file of this machine.
"""

from typing import Literal, TypeAlias, get_args

from forebay.errors import SourceError

__all__ = ["ExternalFiles", "external_file_error", "reads_external_files"]

ExternalFiles: TypeAlias = Literal["refuse", "read"]


def reads_external_files(option: ExternalFiles) -> bool:
    """Return whether other files may be read. Raise SourceError for an unknown value."""
    if option not in get_args(ExternalFiles):
        raise SourceError(f"external_files={option!r} is unknown. Choose 'refuse' or 'read'.")
    return option == "read"


def external_file_error(problem: str) -> SourceError:
    """Return the error for data in another file.

    `problem` says which data are in which file.
    """
    return SourceError(
        f"{problem}. A file from an untrusted source could name any file of this machine. If you trust this file, pass "
        "external_files='read'."
    )
