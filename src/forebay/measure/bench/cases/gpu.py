"""What is measured where a GPU is fed: the rows of that table, who takes part, and what this project promises.

Every peer is used the best way its users know, and a losing row stays. Frameworks are told to take device memory as
they need it, because all entries of a case share one device.
"""

from forebay.measure.bench.model import Case, Column, Entry, Target, Work

__all__ = ["GPU_CASES"]

SPEED = Column("speed", "GB/s", "GB/s", ratio=True)
CORES = Column("cpu", "cores", "CPU cores")
TIMEOUT_SECONDS = 90.0

ENVIRONMENT = {
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # so that a look for the GPU does not forbid to fork workers
}
STREAMED = {"environment": ENVIRONMENT, "stamped": True, "device": "cuda", "resident": "never"}
RESIDENT = {**STREAMED, "resident": "always", "consumer": "torch_bytes"}

IMAGES = Work(28_672, (224, 224, 3), 256, dtype="uint8", options=STREAMED)
ROWS = Work(10_739_712, (100,), 8192, options=STREAMED)

PEAK = Entry("page-locked DMA peak", "gpu_dma_peak", {"to": "driver"})
TO_TORCH = Entry("forebay to torch", "gpu_forebay_torch", {"to": "torch"})
TO_TORCH_ALONE = Entry("forebay to torch, one CPU", "gpu_forebay_torch", {"to": "torch", "cpus": 1})
TO_JAX = Entry("forebay to JAX", "gpu_forebay_jax", {"to": "jax"})
TO_TENSORFLOW = Entry("forebay to TensorFlow", "gpu_forebay_tensorflow", {"to": "tensorflow"})
TO_CUPY = Entry("forebay to CuPy", "gpu_forebay_cupy", {"to": "cupy"})
SPDL = Entry("SPDL 12 threads, pinned", "gpu_spdl", {"to": "torch"})
TF_DATA = Entry("tf.data shuffle(4096)", "gpu_tf_slices", {"to": "tensorflow"})
TORCH_INDEX = Entry("torch index + pin", "gpu_torch_index", {"to": "torch"})
COPIES_AHEAD = Entry("plain copies, not shuffled", "gpu_torch_ahead", {"to": "torch"})
LOADER = Entry("DataLoader 14 workers + pin", "gpu_torch_loader", {"to": "torch", "workers": 14})
DALI = (
    Entry("DALI external_source", "gpu_dali", {"to": "torch"}),
    Entry("DALI 14 workers", "gpu_dali", {"to": "torch", "workers": 14}),
)
PEERS = (
    SPDL,
    TF_DATA,
    Entry("tf.data + prefetch_to_device", "gpu_tf_slices", {"to": "tensorflow", "prefetch_to_device": True}),
    Entry("tf.convert_to_tensor", "gpu_tf_call", {"to": "tensorflow"}),
    TORCH_INDEX,
    Entry("DataLoader tuned, 14 + pin", "gpu_torch_tuned", {"to": "torch", "workers": 14}),
    LOADER,
    Entry("DataLoader 0 workers + pin", "gpu_torch_loader", {"to": "torch", "workers": 0}),
    Entry("JAX device_put", "gpu_jax_put", {"to": "jax"}),
    Entry("Grain 16 threads + device_put", "gpu_grain", {"to": "jax"}),
)


def _at_link_speed(*labels: str, gigabytes: float, share: float) -> tuple[Target, ...]:
    amounts = (Target(label, "speed", at_least=gigabytes) for label in labels)
    return (*amounts, *(Target(label, "speed", at_least=share, over=PEAK.label) for label in labels))


STREAMING_CASES = (
    Case(
        name="gpu-images",
        title="4 GiB of 224x224x3 uint8, batch 256, shuffled, streamed",
        meaning="Every batch is touched on the device, one element a row, and the clock stops when that is done; "
        "the first is compared byte for byte, whole epochs by their sum. CPU cores: of all processes of a loader.",
        work=IMAGES,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(PEAK, TO_TORCH, TO_JAX, TO_TENSORFLOW, TO_CUPY, TO_TORCH_ALONE, *PEERS, *DALI),
        baseline=PEAK.label,
        targets=(
            *_at_link_speed(TO_TORCH.label, TO_JAX.label, TO_TENSORFLOW.label, gigabytes=47, share=0.86),
            Target(TO_TORCH.label, "cpu", at_most=0.25),
            Target(TO_TORCH_ALONE.label, "cpu", at_most=0.25),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-images-busy",
        title="the same while the GPU computes 8192^3 fp32 products on another stream",
        meaning="slowed: the time of a product beside the loader over its time alone, by the device's own clock.",
        work=IMAGES,
        meter="device_busy",
        columns=(SPEED, Column("slowed", "x", "compute slowed")),
        entries=(Entry(PEAK.label, "gpu_dma_peak_busy", PEAK.options), TO_TORCH, SPDL, TORCH_INDEX),
        baseline=PEAK.label,
        targets=(
            Target(TO_TORCH.label, "speed", at_least=42),
            Target(TO_TORCH.label, "slowed", at_most=1.02),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-images-npy",
        title="the same from a mapped .npy in the page cache",
        meaning="A file is fed as it lies in the page cache: it is never loaded.",
        work=IMAGES,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            PEAK,
            Entry("forebay .npy to torch", "gpu_forebay_torch", {"to": "torch", "source": "files", "file": "npy"}),
        ),
        baseline=PEAK.label,
        files=("npy",),
        targets=(Target("forebay .npy to torch", "speed", at_least=45),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-rows",
        title="4 GiB of 100 float32, batch 8192, shuffled, streamed",
        meaning="Rows of 400 bytes from anywhere: random reads, not bandwidth, are the limit.",
        work=ROWS,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(PEAK, TO_TORCH, TO_JAX, TO_TENSORFLOW, TO_CUPY, *PEERS),
        baseline=PEAK.label,
        targets=(Target(TO_TORCH.label, "speed", at_least=30),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-rows-one-thread",
        title="the same by a process that may use one CPU",
        meaning="What a feed is worth on a host whose processors are taken.",
        work=ROWS,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            PEAK,
            TO_TORCH_ALONE,
            Entry("torch index + pin, one CPU", "gpu_torch_index", {"to": "torch", "cpus": 1}),
        ),
        baseline=PEAK.label,
        targets=(Target(TO_TORCH_ALONE.label, "speed", at_least=25),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
)

OTHER_CASES = (
    Case(
        name="gpu-resident",
        title="4 GiB of images kept on the GPU, batch 256, shuffled there",
        meaning="Every byte of every batch is summed on the device; nothing crosses the link any more.",
        work=Work(IMAGES.rows, IMAGES.shape, IMAGES.batch, dtype=IMAGES.dtype, options=RESIDENT),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(Entry("torch index_select on the GPU", "gpu_torch_resident", {"to": "torch"}), TO_TORCH),
        baseline="torch index_select on the GPU",
        targets=(Target(TO_TORCH.label, "speed", at_least=1200),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-first-batch",
        title="first shuffled batch of 4 GiB of images",
        meaning="made: until the loader is there; first: from iter() until the batch is on the device; cold: both "
        "together, the first time in a process.",
        work=IMAGES,
        meter="device_first_batch",
        columns=(Column("made", "ms", "made"), Column("first", "ms", "first batch"), Column("cold", "ms", "cold")),
        entries=(TO_TORCH, TORCH_INDEX, LOADER),
        targets=(Target(TO_TORCH.label, "first", at_most=100),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-step",
        title="a training step that takes a little longer than the copy of its batch",
        meaning="slowed: the step fed over the same step on one batch that stays on the GPU; compute: that step over "
        "the copy of a batch at the link's peak.",
        work=IMAGES,
        meter="device_step",
        columns=(
            Column("fed", "ms", "fed"),
            Column("alone", "ms", "resident"),
            Column("slowed", "x", "slowed"),
            Column("compute", "x", "compute"),
        ),
        entries=(COPIES_AHEAD, TO_TORCH, TO_JAX, TO_TENSORFLOW, SPDL, TF_DATA),
        targets=(
            Target(TO_TORCH.label, "slowed", at_most=1.03),
            Target(TO_JAX.label, "slowed", at_most=1.03),
            Target(TO_TENSORFLOW.label, "slowed", at_most=1.05),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
)


def _keras_case(backend: str, name: str, framework: str, *more: Entry) -> Case:
    again, feed = Entry("one batch on the GPU", f"gpu_keras_{backend}_again"), f"gpu_forebay_keras_{backend}"
    return Case(
        name=name,
        title=f"Keras fit on {framework}, a small CNN on 64x64x3 float32, batch 256",
        meaning="ms a step with the defaults of fit, over fit on one batch that stays on the GPU.",
        work=Work(80 * 256, (64, 64, 3), 256, options={**_KERAS, "backend": backend}),
        meter="keras_fit",
        columns=(Column("step", "ms", "a step", ratio=True),),
        entries=(
            again,
            Entry("forebay", feed),
            Entry("forebay streamed", feed, {"resident": "never"}),
            *more,
            Entry("NumPy arrays", f"gpu_keras_{backend}_arrays"),
        ),
        baseline=again.label,
        targets=(Target("forebay", "step", at_most=1.05, over=again.label),),
        timeout_seconds=TIMEOUT_SECONDS,
    )


_KERAS = {"environment": ENVIRONMENT, "stamped": True}

KERAS_CASES = (
    _keras_case("tensorflow", "gpu-keras", "TensorFlow", Entry("tf.data shuffle(4096)", "gpu_keras_tf_data")),
    _keras_case("jax", "gpu-keras-jax", "JAX"),
    _keras_case("torch", "gpu-keras-torch", "torch"),
)

GPU_CASES: tuple[Case, ...] = (*STREAMING_CASES, *OTHER_CASES, *KERAS_CASES)
