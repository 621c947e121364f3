"""Names -> "module:attribute", looked up on use.

This is how a pipeline reaches engines, hand-offs and adapters without importing upwards, and how `import forebay`
stays light. Other packages add their own through the entry points `forebay.sources` and `forebay.handoff`.
"""

import importlib
from typing import Any

from forebay.errors import FrameworkError, SourceError

__all__ = [
    "adapter",
    "address_opener",
    "engine",
    "feed",
    "fetcher",
    "hand_off",
    "known_targets",
    "ray_connect",
    "ray_finisher",
    "source_opener",
    "version",
]

_HAND_OFFS = {
    "numpy": "forebay.adapters.handoff.numpy:NumpyHandOff",
    "torch": "forebay.adapters.handoff.torch:TorchHandOff",
    "jax": "forebay.adapters.handoff.jax:JaxHandOff",
    "tensorflow": "forebay.adapters.handoff.tensorflow:TensorflowHandOff",
    "cupy": "forebay.adapters.handoff.cupy:CupyHandOff",
}
_ADAPTERS = {"keras": "forebay.adapters.keras.keras_feed:KerasFeed"}
_ENGINES = {"cpu": "forebay.engines.host:HostEngine", "cuda": "forebay.engines.cuda.engine:CudaEngine"}
_SOURCES = {
    ".npy": "forebay.sources.formats.npy:open_npy",
    ".npz": "forebay.sources.formats.npz:open_npz",
    ".csv": "forebay.sources.formats.csv:open_csv",
    ".txt": "forebay.sources.formats.csv:open_txt",
    ".bin": "forebay.sources.formats.raw:open_binary",
    ".h5": "forebay.sources.formats.hdf5:open_hdf5",
    ".hdf5": "forebay.sources.formats.hdf5:open_hdf5",
    ".parquet": "forebay.sources.formats.parquet:open_parquet",
    ".pq": "forebay.sources.formats.parquet:open_parquet",
    ".arrow": "forebay.sources.formats.arrow:open_arrow",
    ".feather": "forebay.sources.formats.arrow:open_arrow",
    ".ipc": "forebay.sources.formats.arrow:open_arrow",
    ".zarr": "forebay.sources.formats.zarr:open_zarr",
    ".tar": "forebay.sources.formats.webdataset:open_webdataset",
    ".tar.gz": "forebay.sources.formats.webdataset:open_webdataset",
    ".tgz": "forebay.sources.formats.webdataset:open_webdataset",
    ".tfrecord": "forebay.sources.formats.tfrecord:open_tfrecord",
    ".tfrecords": "forebay.sources.formats.tfrecord:open_tfrecord",
    ".tfrecord.gz": "forebay.sources.formats.tfrecord:open_tfrecord",
    ".png": "forebay.sources.formats.images:open_image",
    ".jpg": "forebay.sources.formats.images:open_image",
    ".jpeg": "forebay.sources.formats.images:open_image",
    ".bmp": "forebay.sources.formats.images:open_image",
    ".gif": "forebay.sources.formats.images:open_image",
    ".tif": "forebay.sources.formats.images:open_image",
    ".tiff": "forebay.sources.formats.images:open_image",
    ".webp": "forebay.sources.formats.images:open_image",
}
_EXTRAS = {
    "h5py": "hdf5",
    "isal": "hdf5",
    "pyarrow": "arrow",
    "zarr": "zarr",
    "google_crc32c": "tfrecord",
}  # what brings a library


def known_targets() -> list[str]:
    """What `feed(to=...)` can be given."""
    return [*_HAND_OFFS, *_ADAPTERS, *_plugins("forebay.handoff")]


def hand_off(name: str) -> Any:
    """The hand-off class for a framework; importing it imports the framework."""
    target = _HAND_OFFS.get(name) or _plugin("forebay.handoff", name)
    if target is None:
        raise FrameworkError(f"cannot feed {name!r}: choose one of {', '.join(map(repr, known_targets()))}.", name=name)
    return _load_framework(target, name)


def adapter(name: str) -> Any | None:
    """The class that makes a feed into the loader a trainer expects, where the name is a trainer's."""
    target = _ADAPTERS.get(name)
    return None if target is None else _load_framework(target, name)


def engine(kind: str) -> Any:
    """The engine class for a kind of device."""
    return _load(_ENGINES[kind])


def fetcher() -> Any:
    """The class that lets a CUDA device fetch rows by itself."""
    return _load("forebay.engines.cuda.pull.fetcher:Fetcher")


def source_opener(suffix: str) -> Any:
    """The function that opens one file of this kind as a source."""
    target = _SOURCES.get(suffix.lower()) or _plugin("forebay.sources", suffix.lower().lstrip("."))
    if target is None:
        raise SourceError(f"files ending in {suffix!r} cannot be read: Forebay reads {', '.join(sorted(_SOURCES))}.")
    try:
        return _load(target)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise FrameworkError(
            f"{suffix} files are read by {error.name}, which is not installed: pip install 'forebay[{extra}]'.",
            name=error.name,
        ) from error


def address_opener() -> Any:
    """The function that opens objects of a store as a source."""
    try:
        return _load("forebay.sources.objects.open_objects:open_addresses")
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            raise
        raise FrameworkError(
            "stores are read by fsspec, which is not installed: pip install 'forebay[remote]'.", name="fsspec"
        ) from error


def ray_connect() -> Any:
    """The function that reaches a Ray cluster."""
    return _load_ray("forebay.transforms.workers.ray_connection:connect")


def ray_finisher() -> Any:
    """The class that has transforms done by Ray workers."""
    return _load_ray("forebay.feed.ray_stage:RayFinisher")


def version() -> str:
    """The version of Forebay itself."""
    return str(_load("forebay:__version__"))


def feed() -> Any:
    """The class of a running feed."""
    return _load("forebay.feed.feed:Feed")


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _load_ray(target: str) -> Any:
    try:
        return _load(target)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise FrameworkError(
            "map(..., where='ray') needs Ray, which is not installed: pip install 'forebay[ray]'.", name="ray"
        ) from error


def _install(module: str) -> str:
    """What brings a module, where that has another name."""
    return {"cupy": "cupy-cuda13x"}.get(module, module)


def _load_framework(target: str, name: str) -> Any:
    try:
        return _load(target)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "forebay":
            raise
        raise FrameworkError(
            f"cannot feed {name!r}: {error.name!r} is not installed. Install it (pip install {_install(error.name)}), "
            "or feed('numpy').",
            name=error.name,
        ) from error


def _plugin(group: str, name: str) -> str | None:
    return _plugins(group).get(name)


def _plugins(group: str) -> dict[str, str]:
    # Imported here because it costs as much as all of Forebay does, and most programs never ask.
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)}
