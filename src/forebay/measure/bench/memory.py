"""How much memory a process holds and the machine has left, as Linux tells it."""

from pathlib import Path

__all__ = ["available_nbytes", "held_nbytes"]


def held_nbytes() -> int | None:
    """RssAnon + RssShmem of this process; mapped files are left out, since the kernel may drop them at will."""
    fields = _fields(Path("/proc/self/status"))
    return fields["RssAnon"] + fields["RssShmem"] if "RssAnon" in fields else None


def available_nbytes() -> int | None:
    return _fields(Path("/proc/meminfo")).get("MemAvailable")


def _fields(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    lines = (line.split() for line in path.read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(kib) * 1024 for name, kib, _ in lines}
