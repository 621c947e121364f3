"""The plug-in registry: modules and classes that Forebay imports by name, on first use.

A pipeline loads engines, hand-offs, adapters and the feed through this registry. Therefore lower packages never import
higher packages, and `import forebay` loads no framework. Plug-ins add file formats and frameworks with the entry points
`forebay.sources` and `forebay.handoff`.

An import target is a string "module" or "module:attribute". The doctor and the bench keep their own tables of import
targets. `all_targets` lists the targets of all tables, so that a test can import each of them.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from forebay.core.plugin_names import adapt_hand_off
from forebay.errors import FrameworkError, SourceError

__all__ = [
    "all_targets",
    "forebay_version",
    "framework_name",
    "has_adapter",
    "known_frameworks",
    "load",
    "load_adapter",
    "load_copying_hand_off",
    "load_engine",
    "load_feed",
    "load_hand_off",
    "load_multi_device_feed",
    "load_image_container",
    "load_object_opener",
    "load_placed_hand_off",
    "load_source_opener",
]

_HAND_OFFS = {
    "numpy": "forebay.adapters.handoff.numpy:NumpyHandOff",
    "torch": "forebay.adapters.handoff.torch:TorchHandOff",
    "jax": "forebay.adapters.handoff.jax:JaxHandOff",
    "tensorflow": "forebay.adapters.handoff.tensorflow:TensorflowHandOff",
    "cupy": "forebay.adapters.handoff.cupy:CupyHandOff",
}
# Functions that return the hand-off for a framework's description of several devices, or None for other objects.
_PLACEMENTS = {
    "jax": "forebay.adapters.handoff.jax_sharding:place",
    "tensorflow": "forebay.adapters.handoff.tensorflow_replicas:place",
}
# Functions that return the hand-off for a device that the framework itself fills, such as "mps".
_COPIES = {
    "torch": "forebay.adapters.handoff.torch_copy:make_copy_hand_off",
    "jax": "forebay.adapters.handoff.jax_copy:make_copy_hand_off",
    "tensorflow": "forebay.adapters.handoff.tensorflow_copy:make_copy_hand_off",
}
_ADAPTERS = {
    "keras": "forebay.adapters.keras.keras_feed:KerasFeed",
    "loader": "forebay.adapters.loader.feed_loader:open_feed_loader",
}
# Other names of frameworks that `feed(to=...)` accepts.
_SYNONYMS = {"pytorch": "torch", "tf": "tensorflow", "np": "numpy"}
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
# Formats of files that contain images, for `from_images`.
_CONTAINERS = "forebay.sources.formats.image_containers"
_IMAGE_CONTAINERS = {
    ".tar": f"{_CONTAINERS}.tar:TarImages",
    ".tar.gz": f"{_CONTAINERS}.tar:TarImages",
    ".tgz": f"{_CONTAINERS}.tar:TarImages",
    ".parquet": f"{_CONTAINERS}.arrow:open_parquet_images",
    ".pq": f"{_CONTAINERS}.arrow:open_parquet_images",
    ".arrow": f"{_CONTAINERS}.arrow:open_arrow_images",
    ".feather": f"{_CONTAINERS}.arrow:open_arrow_images",
    ".ipc": f"{_CONTAINERS}.arrow:open_arrow_images",
    ".tfrecord": f"{_CONTAINERS}.tfrecord:TfrecordImages",
    ".tfrecords": f"{_CONTAINERS}.tfrecord:TfrecordImages",
    ".tfrecord.gz": f"{_CONTAINERS}.tfrecord:TfrecordImages",
    ".h5": f"{_CONTAINERS}.hdf5:Hdf5Images",
    ".hdf5": f"{_CONTAINERS}.hdf5:Hdf5Images",
    ".mdb": f"{_CONTAINERS}.lmdb:LmdbImages",
    ".lmdb": f"{_CONTAINERS}.lmdb:LmdbImages",
}
_OBJECT_OPENER = "forebay.sources.objects.open_objects:open_urls"
_FEED = "forebay.feed.feed:Feed"
_MULTI_DEVICE_FEED = "forebay.feed.multi_device_feed:MultiDeviceFeed"
_VERSION = "forebay:__version__"

# Import targets that other packages of Forebay load by name without this registry.
_OTHER_TARGETS = (
    "forebay.adapters.readback.cuda:DeviceReader",
    "forebay.adapters.upload.cuda:CudaUploader",
    "forebay.adapters.upload.jax:UntracedUploader",
    "forebay.adapters.upload.tensorflow:EagerScopeUploader",
    "forebay.doctor.capture.hooks.tensorflow.host_trace",
    "forebay.doctor.capture.hooks.torch.dynamo:hook_dynamo",
    "forebay.doctor.diagnosis.subprocess_run",  # run with python -m
    "forebay.doctor.keras_callback:KerasWatch",
    "forebay.doctor.report.html:render_card",
    "forebay.doctor.watch_context:Watch",
    "forebay.doctor.watch_context:watch",
    "forebay.measure.bench.contender_main",  # run with python -m
    "forebay.measure.bench.steps.jax:make_step",
    "forebay.measure.bench.steps.tensorflow:make_step",
    "forebay.measure.bench.steps.torch:make_step",
)
# Tables of other packages of Forebay. Each format string turns one entry of its table into an import target.
_OTHER_TABLES = {
    "forebay.adapters.readback.base:_FRAMEWORKS": "forebay.adapters.readback.{}",
    "forebay.cli.main:COMMANDS": "forebay.cli.{}:run",
    "forebay.doctor.capture.session:HOOKS": "{}:install",
    "forebay.doctor.emulate.emulator:FRAMEWORKS": "{}:install",
    "forebay.doctor.rules.registry:RULES": "{}:examine",
    "forebay.measure.bench.consumers:CONSUMERS": "forebay.measure.bench.consumers.{0[0]}:{0[1]}",
    "forebay.measure.bench.contenders:CONTENDERS": "{0.location}",
    "forebay.measure.bench.meters:METERS": "forebay.measure.bench.meters.{}",
}
# Module: the extra of the package `forebay` that installs this module.
_EXTRAS = {
    "h5py": "hdf5",
    "isal": "hdf5",
    "pyarrow": "arrow",
    "zarr": "zarr",
    "numcodecs": "zarr",
    "google_crc32c": "tfrecord",
}
# Module: the package to install, if its name differs. The extra `cupy` of Forebay installs cupy-cuda12x.
_PACKAGES = {"cupy": "cupy-cuda12x (or cupy-cuda13x for CUDA 13)"}
# Module: the oldest supported version, as in pyproject.toml.
_MINIMUM_VERSIONS = {"torch": "2.4", "jax": "0.4.38", "tensorflow": "2.18", "keras": "3.12", "cupy": "13.2"}


def known_frameworks() -> list[str]:
    """Return the names of frameworks and adapters for `feed(to=...)`, without synonyms."""
    return [*_HAND_OFFS, *_ADAPTERS, *_entry_points("forebay.handoff")]


def framework_name(to: Any) -> str:
    """Return Forebay's name for a synonym, such as "torch" for "pytorch", else `to` itself.

    Raise FrameworkError if `to` is not a string.
    """
    if not isinstance(to, str):
        raise _unknown_framework(to)
    return _SYNONYMS.get(to, to)


def load_hand_off(name: str) -> Any:
    """Import a framework, and return a class or function that creates its hand-off."""
    if name in _HAND_OFFS:
        return _load_framework(_HAND_OFFS[name], name)
    target = _entry_points("forebay.handoff").get(name)
    if target is None:
        raise _unknown_framework(name)
    create = _load_framework(target, name)
    return lambda: adapt_hand_off(create())


def _unknown_framework(to: Any) -> FrameworkError:
    meant = framework_name(getattr(to, "__name__", str(to)).lower())  # `to` may be a module, or in capitals
    names = ", ".join(map(repr, known_frameworks()))
    advice = f"Write feed({meant!r})" if meant in known_frameworks() else f"Choose one of {names}"
    return FrameworkError(f"cannot feed {to!r}. {advice}.", name=str(to))


def load_placed_hand_off(name: str, device: Any) -> Any | None:
    """Return the hand-off for an object that describes several devices.

    Return None if `device` is an object of another kind, or if the framework has no such objects.
    """
    target = _PLACEMENTS.get(name)
    return None if target is None else _load_framework(target, name)(device)


def load_copying_hand_off(name: str, device: str) -> Any | None:
    """Return the hand-off for a device that the framework itself fills.

    Return None if the framework has no such devices, or if `device` is "auto" and this machine has no such device.
    """
    target = _COPIES.get(name)
    return None if target is None else _load_framework(target, name)(device)


def has_adapter(name: str) -> bool:
    """Return whether an adapter for trainers, such as Keras, has this name."""
    return name in _ADAPTERS


def load_adapter(name: str) -> Any | None:
    """Return the class or function that makes the adapter for trainers, such as Keras.

    Return None if no adapter has this name.
    """
    target = _ADAPTERS.get(name)
    return None if target is None else _load_framework(target, name)


def load_engine(kind: str) -> Any:
    """Return the engine class for "cpu" or "cuda"."""
    return load(_ENGINES[kind])


def load_source_opener(suffix: str) -> Any:
    """Return the function that opens a file with this suffix as a source."""
    suffix = suffix.lower()
    target = _SOURCES.get(suffix) or _entry_points("forebay.sources").get(suffix.lstrip("."))
    if target is None:
        raise SourceError(f"cannot read {suffix!r} files. Convert them to one of {', '.join(sorted(_SOURCES))}.")
    return _load_format(target, suffix)


def load_image_container(suffix: str) -> Any | None:
    """Return the class or function that opens the images inside a file with this suffix.

    Return None if no format of files that contain images has this suffix.
    """
    target = _IMAGE_CONTAINERS.get(suffix.lower())
    return None if target is None else _load_format(target, suffix)


def _load_format(target: str, suffix: str) -> Any:
    try:
        return load(target)
    except ImportError as error:  # the package is missing, or an old version of it lacks a module or a name
        module = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(module)
        if extra is None:
            raise
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == module
        state = "is not installed" if is_missing else "is too old or damaged"
        raise FrameworkError(
            f"{suffix} files need {module}, which {state}. Run: pip install --upgrade 'forebay[{extra}]'.", name=module
        ) from error


def load_object_opener() -> Any:
    """Return the function that opens objects of an object store as a source."""
    try:
        return load(_OBJECT_OPENER)
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            raise
        raise FrameworkError(
            "object stores need fsspec, which is not installed. Run: pip install 'forebay[remote]'.", name="fsspec"
        ) from error


def load_feed() -> Any:
    """Return the `Feed` class."""
    return load(_FEED)


def load_multi_device_feed() -> Any:
    """Return the `MultiDeviceFeed` class."""
    return load(_MULTI_DEVICE_FEED)


def forebay_version() -> str:
    """Return the version of Forebay."""
    return str(load(_VERSION))


def load(target: str) -> Any:
    """Import "module" or "module:attribute", and return the module or the attribute."""
    module, _, attribute = target.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def all_targets() -> tuple[str, ...]:
    """Return every import target that any package of Forebay loads by name."""
    tables = (_HAND_OFFS, _PLACEMENTS, _COPIES, _ADAPTERS, _ENGINES, _SOURCES, _IMAGE_CONTAINERS)
    own_targets = [target for table in tables for target in table.values()]
    other_targets = _OBJECT_OPENER, _FEED, _MULTI_DEVICE_FEED, _VERSION, *_OTHER_TARGETS
    return tuple(dict.fromkeys((*own_targets, *other_targets, *_targets_in_other_tables())))


def _targets_in_other_tables() -> Iterator[str]:
    for table, target_format in _OTHER_TABLES.items():
        entries = load(table)
        for entry in entries.values() if isinstance(entries, Mapping) else entries:
            yield target_format.format(entry)


def _load_framework(target: str, name: str) -> Any:
    try:
        if name in _MINIMUM_VERSIONS:
            _check_version(name)
        return load(target)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "forebay":
            raise
        raise FrameworkError(
            f"cannot feed {name!r}, because {error.name!r} is not installed. Run: pip install "
            f"{_PACKAGES.get(error.name, error.name)}. Or use feed('numpy').",
            name=error.name,
        ) from error


def _check_version(module: str) -> None:
    """Import a framework, and raise FrameworkError if its version is older than the minimum."""
    version = str(getattr(importlib.import_module(module), "__version__", ""))
    minimum = _MINIMUM_VERSIONS[module]
    if version and _release(version) < _release(minimum):
        package = _PACKAGES.get(module, module)
        raise FrameworkError(
            f"{module} {version} is too old. Forebay needs {minimum} or later. Run: pip install --upgrade {package}.",
            name=module,
        )


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version: (2, 13, 0) of "2.13.0+cpu"."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def _entry_points(group: str) -> dict[str, str]:
    # Import on first use: importing importlib.metadata takes as long as importing Forebay, and few programs need it.
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)}
