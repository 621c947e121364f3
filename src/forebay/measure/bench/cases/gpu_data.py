"""The GPU cases of `forebay bench` with image files and windows."""

from dataclasses import replace

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
DECODER_THREADS = Entry("libjpeg-turbo threads", "gpu_images_threads", {"to": "torch"})
ON_HOST = "forebay to torch, CPU decoder"
NVIMGCODEC = Entry("nvImageCodec alone", "gpu_images_nvimgcodec", {"to": "torch"})
_ON_GPU = {"source": "image_folder", "decoder": "nvjpeg"}
_ON_HOST = {"source": "image_folder", "decoder": "simplejpeg"}
DECODED_ON_GPU = tuple(
    Entry(f"forebay to {name}", f"gpu_images_forebay_{framework}", {"to": framework, **_ON_GPU})
    for framework, name in (("torch", "torch"), ("jax", "JAX"), ("tensorflow", "TensorFlow"))
)
STRETCHED = Entry("forebay to torch, full images", "gpu_images_forebay_torch", {"to": "torch", **_ON_GPU})
BOXES_ON_GPU = tuple(replace(entry, options={**entry.options, "boxes": "decode"}) for entry in DECODED_ON_GPU)
DALI_BOXES = tuple(
    Entry(f"DALI, {name}, {load}", "gpu_images_dali", {"to": "torch", "hardware_load": load, "boxes": boxes})
    for boxes, name in (("decode", "decodes boxes"), ("resize", "crops decoded images"))
    for load in (0.65, 0.95, 1.0)
)
_DECODED = {"to": "torch", "source": "decoded_images", "consumer": "torch_bytes"}
_CACHED = {**_DECODED, "source": "cached_images", "cache": "ram"}
COPIED_WINDOWS, WINDOWS = "forebay, copied windows", "forebay window"
WINDOW_CONSUMERS = {"torch": "torch_bytes", "jax": "jax", "tensorflow": "tensorflow"}

IMAGE_CASES: tuple[Case, ...] = (
    Case(
        name="gpu-image-folder",
        title="8k JPEG files of 500x375 to 224x224, batch 256, shuffled, decoded on the GPU",
        meaning="The image files are in the page cache. A decoder alone decodes files in memory. It makes no batches "
        "and does not resize.",
        work=Workload(8192, IMAGE_SHAPE, 256, dtype="uint8", options=FILES),
        meter="device_throughput",
        columns=(IMAGES_PER_SECOND, CORES),
        entries=(
            DECODER_ALONE,
            *DECODED_ON_GPU,
            Entry(ON_HOST, "gpu_images_forebay_torch", {"to": "torch", **_ON_HOST}),
            DECODER_THREADS,
            *DALI,
            NVIMGCODEC,
        ),
        baseline=DECODER_ALONE.label,
        files=("jpegs",),
        targets=(
            *(
                PerformanceTarget(entry.label, "rows", at_least=1, over=dali.label)
                for entry in DECODED_ON_GPU
                for dali in DALI
            ),
            PerformanceTarget(ON_HOST, "rows", at_least=0.9, over=DECODER_THREADS.label),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-random-boxes",
        title="random boxes of 8k JPEG files of 500x375 to 224x224, batch 256, shuffled, decoded on the GPU",
        meaning="The image files are in the page cache. Each loader draws a new box of each image in each epoch.",
        work=Workload(8192, IMAGE_SHAPE, 256, dtype="uint8", options=FILES),
        meter="device_throughput",
        columns=(IMAGES_PER_SECOND, CORES),
        entries=(STRETCHED, *BOXES_ON_GPU, *DALI_BOXES),
        baseline=STRETCHED.label,
        files=("jpegs",),
        targets=tuple(
            PerformanceTarget(entry.label, "rows", at_least=1, over=dali.label)
            for entry in BOXES_ON_GPU
            for dali in DALI_BOXES
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-cached-images",
        title="4k JPEG files of 500x375 to 224x224 with cache(), batch 256, shuffled, after the first epoch",
        meaning="A cache keeps the decoded images. The baseline has the same images in arrays. The device sums all "
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
)


def _window_case(framework: str, gather: Entry) -> Case:
    """Return the case of windows on the GPU for a framework.

    Only the consumer of PyTorch sums all bytes.
    """
    to_framework, is_torch = {"to": framework}, framework == "torch"
    read = "all bytes" if is_torch else "one element of each window"
    return Case(
        name="gpu-windows" if is_torch else f"gpu-windows-{framework}",
        title=f"2M windows of 64 x 8 float32 of one series to {framework}, stride 1, resident, batch 8192, shuffled",
        meaning="The rows are windows of a series. The baseline is an array that has a copy of every window. The "
        f"device sums {read}.",
        work=Workload(2_097_152, (64, 8), 8192, options={**RESIDENT, "consumer": WINDOW_CONSUMERS[framework]}),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            Entry(COPIED_WINDOWS, f"gpu_forebay_{framework}", to_framework),
            Entry(WINDOWS, f"gpu_forebay_{framework}", {**to_framework, "comparable": False, "source": "windows"}),
            gather,
        ),
        baseline=COPIED_WINDOWS,
        targets=(PerformanceTarget(WINDOWS, "speed", at_least=0.9, over=COPIED_WINDOWS),),
        timeout_seconds=TIMEOUT_SECONDS,
    )


def _token_window_case(framework: str, batch: int = 64) -> Case:
    """Return the case of token windows for a framework.

    With small batches, the speed of Python limits windows and plain rows equally, so large batches have a case too.
    """
    to_framework, kind = {"to": framework}, "gpu-token-windows" if batch == 64 else "gpu-large-token-windows"
    windows = {**to_framework, "comparable": False, "source": "token_windows", "file": "tokens"}
    return Case(
        name=kind if framework == "torch" else f"{kind}-{framework}",
        title=f"1M windows of 1024 uint16 tokens of a file to {framework}, batch {batch}, shuffled, streamed",
        meaning="A row has a window of a file of tokens, and the token after it. The baseline has rows of 2048 bytes.",
        work=Workload(1_048_576, (2048,), batch, dtype="uint8", options=STREAMED),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            Entry("forebay rows", f"gpu_forebay_{framework}", to_framework),
            Entry(WINDOWS, f"gpu_forebay_{framework}", windows),
        ),
        baseline="forebay rows",
        files=("tokens",),
        targets=(PerformanceTarget(WINDOWS, "speed", at_least=0.9, over="forebay rows"),),
        timeout_seconds=TIMEOUT_SECONDS,
    )


WINDOW_CASES: tuple[Case, ...] = (
    _window_case("torch", Entry("torch index_select on the GPU", "gpu_torch_resident", {"to": "torch"})),
    _window_case("jax", Entry("JAX indexing on the GPU", "gpu_jax_resident", {"to": "jax"})),
    _window_case("tensorflow", Entry("tf.gather on the GPU", "gpu_tf_resident", {"to": "tensorflow"})),
    *map(_token_window_case, ("torch", "jax", "tensorflow")),
    _token_window_case("torch", batch=4096),
)

GPU_DATA_CASES: tuple[Case, ...] = (*IMAGE_CASES, *WINDOW_CASES)
