"""Files of public repositories at a commit, from a folder of checkouts."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Checkout:
    """A repository at a commit. `git` is its git directory, bare or inside a work tree."""

    git: Path
    commit: str

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._run("show", f"{self.commit}:{path}")

    def list(self, path: str) -> list[str]:
        """Return the file with this path, or all files of the folder with this path."""
        names = self._run("ls-tree", "-r", "--name-only", self.commit, "--", path).decode().splitlines()
        if not names:
            raise FileNotFoundError(f"{self.git} has no {path} at {self.commit}. Fetch this commit.")
        return names

    def _run(self, *arguments: str) -> bytes:
        command = ["git", "--git-dir", str(self.git), *arguments]
        return subprocess.run(command, check=True, capture_output=True).stdout


def find_checkout(folder: Path, repository: str, commit: str) -> Checkout:
    """Find owner+name or owner/name in the folder: a git directory, a work tree, or a folder with one in `repo`."""
    for base in (folder / repository.replace("/", "+"), folder / repository):
        for git in (base / ".git", base / "repo" / ".git", base / "repo", base):
            if (git / "HEAD").exists():
                return Checkout(git.resolve(), commit)
    raise FileNotFoundError(f"{folder} has no checkout of {repository}. Clone it to {folder / repository}.")
