"""An fsspec store with constant listings, for caches that 0.1 filled."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
from fsspec.spec import AbstractFileSystem

import forebay as fb

__all__ = ["CACHES", "Cached", "FixedStore", "pack", "unpack"]

Array = np.ndarray[Any, Any]


class FixedStore(AbstractFileSystem):
    """A store of given bytes that records every read."""

    protocol = "compat"
    objects: ClassVar[dict[str, bytes]] = {}
    reads: ClassVar[list[tuple[str, int, int]]] = []

    @classmethod
    def hold(cls, objects: dict[str, bytes]) -> None:
        """Serve only these objects from now on."""
        fsspec.register_implementation(cls.protocol, cls, clobber=True)
        cls.objects = objects
        cls.reads.clear()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        if name not in self.objects:
            raise FileNotFoundError(path)
        # The version does not depend on the bytes, so that a test can replace the bytes.
        return {"name": name, "size": len(self.objects[name]), "type": "file", "ETag": f'"{name}-1"'}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = [self.info(name) for name in self.objects if name.startswith(self._strip_protocol(path))]
        return found if detail else [each["name"] for each in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        data = self.objects[self._strip_protocol(path)][start:end]
        self.reads.append((path, start or 0, len(data)))
        return data


class Cached:
    """Objects, their rows, and the pipeline that reads them through a cache."""

    def __init__(self, objects: dict[str, bytes], payloads: list[bytes], rows: Any, batch: int) -> None:
        self.objects, self.rows, self._payloads, self._batch = objects, rows, payloads, batch

    @property
    def without_rows(self) -> dict[str, bytes]:
        """Return objects of equal length with zeros as rows. Correct rows then come from the cache."""
        emptied = dict(self.objects)
        for payload in self._payloads:
            emptied = {name: data.replace(payload, bytes(len(payload))) for name, data in emptied.items()}
        return emptied

    def pipeline(self, cache: Path) -> fb.Pipeline:
        urls = [f"compat://{name}" for name in self.objects]
        return fb.from_files(urls, cache=cache, cache_bytes="64MiB").batch(self._batch)


def _npy() -> Cached:
    rows = np.arange(1, 121, dtype="f8").reshape(40, 3)
    return Cached({"bucket/rows.npy": _save_to_bytes(np.save, rows)}, [rows.tobytes()], rows, 16)


def _npz() -> Cached:
    """Make two objects with several members."""
    trees = [{"x": np.arange(n, n + 30, dtype="f4"), "y": np.arange(n, n + 30, dtype="i8")} for n in (1, 1001)]
    objects = {
        f"bucket/{n}.npz": _save_to_bytes(lambda file, t: np.savez(file, **t), tree) for n, tree in enumerate(trees)
    }
    payloads = [leaf.tobytes() for tree in trees for leaf in tree.values()]
    return Cached(objects, payloads, {name: np.concatenate([tree[name] for tree in trees]) for name in "xy"}, 16)


def _large() -> Cached:
    """Make an object of more than one block, with rows that compress well."""
    rows = np.repeat((np.arange(10_240) % 251 + 1).astype("u1")[:, None], 1024, axis=1)
    return Cached({"bucket/large.npy": _save_to_bytes(np.save, rows)}, [rows.tobytes()], rows, 1024)


def _csv() -> Cached:
    """Make an object that is fetched whole, because its format cannot be read in ranges."""
    text = "".join(f"{row},{row / 8}\n" for row in range(1, 31)).encode()
    rows = np.stack([np.arange(1, 31), np.arange(1, 31) / 8], axis=1)
    return Cached({"bucket/rows.csv": b"id,value\n" + text}, [text], rows, 16)


CACHES: dict[str, Callable[[], Cached]] = {"npy": _npy, "npz": _npz, "large_npy": _large, "csv_fetched_whole": _csv}


def pack(folder: Path, archive: Path) -> None:
    """Pack the folder into an archive, which is small and keeps file names unchanged."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.writestr(
                    zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes(), zipfile.ZIP_DEFLATED
                )


def unpack(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


def _save_to_bytes(save: Callable[[Any, Any], None], what: Any) -> bytes:
    file = io.BytesIO()
    save(file, what)
    return file.getvalue()
