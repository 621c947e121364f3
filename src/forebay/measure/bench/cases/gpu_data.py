"""The GPU cases of `forebay bench` with image files and windows."""

from forebay.measure.bench.cases.gpu_options import CORES, RESIDENT, SPEED, STREAMED, TIMEOUT_SECONDS
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["GPU_DATA_CASES"]

IMAGES_PER_SECOND = ResultColumn("rows", "rows/s", "images/s", ratio=True)
IMAGE_SHAPE = (224, 224, 3)
FILES = {**STREAMED, "numbered": False, "comparable": False, "leaf": "image", "file": "jpegs"}
DALI = tuple(
    Entry(f"DALI mixed, hw_decoder_load={load}", "gpu_images_dali", {"to": "torch", "hardware_load": load})
    for load in (0.65, 0.9, 0.95, 1.0)
)
DECODER_ALONE = Entry("nvJPEG alone", "gpu_images_nvjpeg", {"to": "torch"})
NVIMGCODEC = Entry("nvImageCodec alone", "gpu_images_nvimgcodec", {"to": "torch"})
_ON_GPU = {"source": "image_folder", "decoder": "nvjpeg"}
_ON_HOST = {"source": "image_folder", "decoder": "simplejpeg"}
DECODED_ON_GPU = tuple(
    Entry(f"forebay to {name}", f"gpu_images_forebay_{framework}", {"to": framework, **_ON_GPU})
    for framework, name in (("torch", "torch"), ("jax", "JAX"), ("tensorflow", "TensorFlow"))
)
_DECODED = {"to": "torch", "source": "decoded_images", "consumer": "torch_bytes"}
_CACHED = {**_DECODED, "source": "cached_images", "cache": "ram"}
WINDOW_BYTES = {"to": "torch", "comparable": False, "source": "windows"}

GPU_DATA_CASES: tuple[Case, ...] = (
    Case(
        name="gpu-image-folder",
        title="8k JPEG files of 500x375 to 224x224, batch 256, shuffled, decoded on the GPU",
        meaning="Image files in the page cache. A decoder alone decodes files in memory. It makes no batches and "
        "does not resize.",
        work=Workload(8192, IMAGE_SHAPE, 256, dtype="uint8", options=FILES),
        meter="device_throughput",
        columns=(IMAGES_PER_SECOND, CORES),
        entries=(
            DECODER_ALONE,
            *DECODED_ON_GPU,
            Entry("forebay to torch, CPU decoder", "gpu_images_forebay_torch", {"to": "torch", **_ON_HOST}),
            *DALI,
            NVIMGCODEC,
        ),
        baseline=DECODER_ALONE.label,
        files=("jpegs",),
        targets=tuple(
            PerformanceTarget(entry.label, "rows", at_least=1, over=dali.label)
            for entry in DECODED_ON_GPU
            for dali in DALI
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-cached-images",
        title="4k JPEG files of 500x375 to 224x224 with cache(), batch 256, shuffled, after the first epoch",
        meaning="Decoded images that a cache keeps, compared with the same images in arrays. The device sums all "
        "bytes.",
        work=Workload(4096, IMAGE_SHAPE, 256, dtype="uint8", options=FILES),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            Entry("forebay arrays", "gpu_images_forebay_torch", _DECODED),
            Entry("forebay cache in RAM", "gpu_images_forebay_torch", _CACHED),
            Entry("forebay arrays, resident", "gpu_images_forebay_torch", {**_DECODED, "resident": "always"}),
            Entry("forebay cache, resident", "gpu_images_forebay_torch", {**_CACHED, "resident": "always"}),
        ),
        baseline="forebay arrays",
        files=("jpegs",),
        targets=(
            PerformanceTarget("forebay cache in RAM", "speed", at_least=0.95, over="forebay arrays"),
            PerformanceTarget("forebay cache, resident", "speed", at_least=0.95, over="forebay arrays, resident"),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-windows",
        title="2M windows of 64 x 8 float32 of one series, stride 1, resident on the GPU, batch 8192, shuffled",
        meaning="Windows of a series, compared with an array that has a copy of every window. The device sums all "
        "bytes.",
        work=Workload(2_097_152, (64, 8), 8192, options=RESIDENT),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            Entry("forebay, copied windows", "gpu_forebay_torch", {"to": "torch"}),
            Entry("forebay window", "gpu_forebay_torch", WINDOW_BYTES),
            Entry("torch index_select on the GPU", "gpu_torch_resident", {"to": "torch"}),
        ),
        baseline="forebay, copied windows",
        targets=(PerformanceTarget("forebay window", "speed", at_least=0.9, over="forebay, copied windows"),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-token-windows",
        title="1M windows of 1024 uint16 tokens of a file, batch 64, shuffled, streamed",
        meaning="Windows of a file of tokens, each with the next token, compared with rows of 2048 bytes.",
        work=Workload(1_048_576, (2048,), 64, dtype="uint8", options=STREAMED),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            Entry("forebay rows", "gpu_forebay_torch", {"to": "torch"}),
            Entry(
                "forebay window",
                "gpu_forebay_torch",
                {"to": "torch", "comparable": False, "source": "token_windows", "file": "tokens"},
            ),
        ),
        baseline="forebay rows",
        files=("tokens",),
        targets=(PerformanceTarget("forebay window", "speed", at_least=0.9, over="forebay rows"),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
)
