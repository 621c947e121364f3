"""The contenders: one file per framework, imported only in the process of a contender.

Each contender is one function. It receives the `Workload`, sets everything up, and returns a function for the meter of
the case. For most meters, each call of the returned function starts an epoch (`StartEpoch`). For the meter `disk`, the
returned function reads for about the given number of seconds and returns bytes per second. For the meter `keras_fit`,
it returns the data for `fit`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias, cast

from forebay.measure.bench.model import Workload

__all__ = ["CONTENDERS", "Contender", "ContenderFunction", "load_contender"]

ContenderFunction: TypeAlias = Callable[[Workload], Any]

KERAS_BACKENDS = ("tensorflow", "jax", "torch")


@dataclass(frozen=True, slots=True)
class Contender:
    """The location of a contender function, and the modules that it needs."""

    name: str
    location: str  # "module:function"
    requires: tuple[str, ...]  # names of modules
    install: str  # command that installs these modules

    def missing(self) -> tuple[str, ...]:
        """Return the required modules that are not installed. This imports no framework."""
        return tuple(module for module in self.requires if not _is_installed(module))


def load_contender(location: str) -> ContenderFunction:
    """Import the module of a contender, which imports its framework, and return the function."""
    module, _, function = location.partition(":")
    return cast("ContenderFunction", getattr(import_module(module), function))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # raised for "package.module" if the package is not installed
        return False


def _contender(name: str, location: str, *requires: str, install: str = "") -> Contender:
    """Return a contender; `install` defaults to a pip command with the names of its modules."""
    install = install or f"pip install {' '.join(requires)}" if requires else ""
    return Contender(name, f"{__name__}.{location}", requires, install)


def _gpu_feed(framework: str, *requires: str, location: str = "forebay:feed", package: str = "") -> Contender:
    """Return the contender in which Forebay feeds a framework on the GPU.

    Without `requires`, the contender needs the module with the name of the framework. `package` replaces the names of
    these modules in the pip command.
    """
    requires = requires or (framework,)
    install = f"pip install {package or ' '.join(requires)} 'forebay[cu13]'"
    return _contender(f"gpu_forebay_{framework}", location, *requires, "cuda.bindings", install=install)


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        _contender("floor", "numpy:take_batches"),  # "floor": it does the least work of all loaders
        _contender("row_loop", "numpy:copy_rows"),
        _contender("first_fit", "numpy:first_fit_rows"),
        _contender("forebay", "forebay:feed"),
        _contender("forebay_first_batch", "first_batches:first_batch_feed"),
        _contender("forebay_torch", "forebay:feed", "torch"),
        _contender("forebay_tensorflow", "forebay:feed", "tensorflow"),
        _contender("forebay_jax", "forebay:feed", "jax"),
        _contender("keras_adapter", "keras:array_adapter", "tensorflow", "keras"),
        _contender("tf_slices", "tensorflow:tensor_slices", "tensorflow"),
        _contender("tf_generator", "tensorflow:from_generator", "tensorflow"),
        _contender("tf_call", "tensorflow:convert_to_tensor", "tensorflow"),
        _contender("torch_loader", "torch:data_loader", "torch"),
        _contender("torch_tuned", "torch:batched_data_loader", "torch"),
        _contender("torch_sampler", "torch:sampled_data_loader", "torch"),
        _contender("torch_windows", "torch:window_data_loader", "torch"),
        _contender("tf_mixture", "tensorflow:sample_from_datasets", "tensorflow"),
        _contender("tf_timeseries", "tensorflow:timeseries", "tensorflow", "keras"),
        _contender("grain_mixture", "grain:mixture", "grain"),
        _contender("torch_iterable", "torch:iterable_data_loader", "torch"),
        _contender("torch_call", "torch:from_numpy", "torch"),
        _contender("jax_call", "jax:device_put", "jax"),
        _contender("grain_loader", "grain:map_dataset", "grain"),
        _contender("grain_packing", "grain:packed_dataset", "grain"),
        _contender(
            "images_forebay", "forebay:feed", "PIL", "simplejpeg", "cv2", install="pip install 'forebay[images]'"
        ),
        _contender(
            "images_tf", "tensorflow:image_folder", "tensorflow", "PIL", install="pip install tensorflow pillow"
        ),
        _contender(
            "images_torch_pillow", "torch:pillow_data_loader", "torch", "PIL", install="pip install torch pillow"
        ),
        _contender(
            "images_torchvision",
            "torch:torchvision_data_loader",
            "torch",
            "torchvision",
            "PIL",
            install="pip install torch torchvision pillow",
        ),
        _contender(
            "images_threads",
            "simplejpeg:decoder_threads",
            "PIL",
            "simplejpeg",
            "cv2",
            install="pip install 'forebay[images]'",
        ),
        _contender("images_grain", "grain:image_folder", "grain", "PIL", install="pip install grain pillow"),
        _contender(
            "images_dali", "dali:image_folder", "nvidia.dali", "PIL", install="pip install nvidia-dali-cuda130 pillow"
        ),
        _contender(
            "images_webdataset",
            "webdataset:web_loader",
            "webdataset",
            "torch",
            "PIL",
            install="pip install webdataset torch pillow",
        ),
        _contender("frames_forebay", "forebay:feed", "pandas"),
        _contender("frames_tf", "tensorflow:frame_slices", "tensorflow", "pandas"),
        _contender("frames_torch", "torch:frame_tensor", "torch", "pandas"),
        _contender("sparse_forebay", "forebay:feed", "scipy"),
        _contender("sparse_scipy", "scipy:dense_slices", "scipy"),
        _contender("lengths_loop", "numpy:pad_rows"),
        _contender("lengths_forebay", "forebay:feed"),
        _contender("lengths_tf", "tensorflow:length_buckets", "tensorflow"),
        _contender("lengths_torch", "torch:bucket_data_loader", "torch"),
        _contender("disk_fio", "disk:fio"),
        _contender("disk_plain", "disk:preadv_threads"),
        _contender("disk_feed", "forebay:disk_feed"),
        _contender("disk_mapped", "disk:mapped_take"),
        _contender("gpu_dma_peak", "gpu.dma_peak:dma_copies", "cuda.bindings", install="pip install 'forebay[cu13]'"),
        _contender(  # the meter `device_busy` needs torch
            "gpu_dma_peak_busy",
            "gpu.dma_peak:dma_copies",
            "cuda.bindings",
            "torch",
            install="pip install torch 'forebay[cu13]'",
        ),
        _gpu_feed("torch"),
        _gpu_feed("jax"),
        _gpu_feed("tensorflow"),
        _gpu_feed("cupy", package="cupy-cuda13x"),
        *(
            _gpu_feed(f"keras_{backend}", "keras", backend, location="gpu.keras:forebay_feed")
            for backend in KERAS_BACKENDS
        ),
        _contender("gpu_torch_loader", "gpu.torch:data_loader", "torch"),
        _contender("gpu_torch_tuned", "gpu.torch:batched_data_loader", "torch"),
        _contender("gpu_torch_index", "gpu.torch:index_and_pin", "torch"),
        _contender("gpu_torch_ahead", "gpu.torch:prefetched_copies", "torch"),
        _contender("gpu_torch_sampler", "gpu.torch:sampled_data_loader", "torch"),
        _contender("gpu_torch_resident", "gpu.torch:resident_rows", "torch"),
        _contender("gpu_jax_put", "gpu.jax:device_put", "jax"),
        _contender("gpu_jax_resident", "gpu.jax:resident_rows", "jax"),
        _contender("gpu_grain", "gpu.grain:map_dataset", "grain", "jax"),
        _contender("gpu_grain_mixture", "gpu.grain:mixture", "grain", "jax"),
        _contender("gpu_spdl", "gpu.spdl:pipeline", "spdl.pipeline", "torch", install="pip install spdl-core torch"),
        _contender(
            "gpu_dali",
            "gpu.dali:external_source",
            "nvidia.dali",
            "torch",
            install="pip install nvidia-dali-cuda130 torch",
        ),
        *(
            _contender(
                f"gpu_images_forebay_{framework}",
                "forebay:feed",
                framework,
                "cuda.bindings",
                "PIL",
                install=f"pip install {framework} 'forebay[images-cu13]'",
            )
            for framework in ("torch", "jax", "tensorflow")
        ),
        _contender(
            "gpu_images_dali",
            "gpu.dali:image_folder",
            "nvidia.dali",
            "torch",
            "PIL",
            install="pip install nvidia-dali-cuda130 torch pillow",
        ),
        _contender(
            "gpu_images_nvjpeg",
            "gpu.image_decoders:nvjpeg",
            "cuda.bindings",
            "torch",
            "PIL",
            install="pip install torch 'forebay[images-cu13]'",
        ),
        _contender(
            "gpu_images_threads",
            "gpu.image_decoders:libjpeg_turbo",
            "torch",
            "PIL",
            "simplejpeg",
            "cv2",
            install="pip install torch 'forebay[images]'",
        ),
        _contender(
            "gpu_images_nvimgcodec",
            "gpu.image_decoders:nvimgcodec",
            "nvidia.nvimgcodec",
            "torch",
            "PIL",
            install="pip install torch pillow 'nvidia-nvimgcodec-cu13[nvjpeg]'",
        ),
        _contender("gpu_tf_slices", "gpu.tensorflow:tensor_slices", "tensorflow"),
        _contender("gpu_tf_mixture", "gpu.tensorflow:sample_from_datasets", "tensorflow"),
        _contender("gpu_tf_resident", "gpu.tensorflow:resident_rows", "tensorflow"),
        _contender("gpu_tf_call", "gpu.tensorflow:convert_to_tensor", "tensorflow"),
        _contender("gpu_keras_tf_data", "gpu.keras:tf_data", "keras", "tensorflow"),
        *(
            _contender(f"gpu_keras_{backend}_arrays", "gpu.keras:arrays", "keras", backend)
            for backend in KERAS_BACKENDS
        ),
        *(
            _contender(f"gpu_keras_{backend}_again", "gpu.keras:repeated_batch", "keras", backend)
            for backend in KERAS_BACKENDS
        ),
    )
}
