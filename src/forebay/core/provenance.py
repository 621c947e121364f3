"""Provenance of a measurement: the date, and the commit of Forebay."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["package_commit", "provenance", "utc_date"]

_PACKAGE = Path(__file__).parents[1]
GIT_SECONDS = 10.0  # timeout of one call of git


def provenance() -> dict[str, str | None]:
    """Return {"date": present time, "commit": commit of Forebay or None}, for a results file."""
    return {"date": utc_date(), "commit": package_commit()}


def utc_date() -> str:
    """Return the present time in UTC, such as "2026-11-18T15:36:47Z"."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def package_commit(package: Path = _PACKAGE) -> str | None:
    """Return the commit of the git checkout of Forebay that contains this package.

    The commit ends with "-dirty" if files have local changes. Return None for an installed package, even if its
    environment is inside the checkout of another project.
    """
    folder = _run_git(package, "rev-parse", "--show-toplevel")
    if folder is None or Path(folder) / "src" / package.name != package:
        return None
    return _run_git(package, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git, or None if git is missing, fails or prints nothing."""
    # git sets GIT_DIR and similar variables for its hooks; they would select another repository than `folder`.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # nosec B607  # PATH selects git, as in the user's shell
            ["git", *arguments],
            cwd=folder,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},  # else `describe` would lock and rewrite the index
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
