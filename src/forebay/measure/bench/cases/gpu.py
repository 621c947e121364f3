"""The GPU cases of `forebay bench`: workloads, entries and performance targets.

Every loader has an entry with the settings that an expert user would choose. DataLoader also has entries that follow
its tutorial. The table also shows entries that are faster than Forebay. The targets in GB/s and ms are for the H200 in
docs/measurements.md, whose link reaches about 55 GB/s.
"""

from dataclasses import replace

from forebay.measure.bench.cases.choices import CHOICES, PLAIN_SHUFFLE
from forebay.measure.bench.cases.gpu_data import GPU_DATA_CASES
from forebay.measure.bench.cases.gpu_options import CORES, ENVIRONMENT, RESIDENT, SPEED, STREAMED, TIMEOUT_SECONDS
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["GPU_CASES"]

IMAGES = Workload(28_672, (224, 224, 3), 256, dtype="uint8", options=STREAMED)
ROWS = Workload(10_739_712, (100,), 8192, options=STREAMED)

PEAK = Entry("page-locked DMA peak", "gpu_dma_peak", {"to": "driver"})
TO_TORCH = Entry("forebay to torch", "gpu_forebay_torch", {"to": "torch"})
TO_TORCH_ONE_CPU = Entry("forebay to torch, one CPU", "gpu_forebay_torch", {"to": "torch", "cpus": 1})
TO_JAX = Entry("forebay to JAX", "gpu_forebay_jax", {"to": "jax"})
TO_TENSORFLOW = Entry("forebay to TensorFlow", "gpu_forebay_tensorflow", {"to": "tensorflow"})
TO_CUPY = Entry("forebay to CuPy", "gpu_forebay_cupy", {"to": "cupy"})
SPDL = Entry("SPDL 12 threads, pinned", "gpu_spdl", {"to": "torch"})
TF_DATA = Entry("tf.data shuffle(4096)", "gpu_tf_slices", {"to": "tensorflow"})
TORCH_INDEX = Entry("torch index + pin", "gpu_torch_index", {"to": "torch"})
# The contender "gpu_torch_ahead" copies each batch before the step that needs it.
PREFETCHED_COPIES = Entry("plain copies, not shuffled", "gpu_torch_ahead", {"to": "torch"})
INDEX_SELECT = Entry("torch index_select on the GPU", "gpu_torch_resident", {"to": "torch"})
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


def _link_speed_targets(*labels: str, gigabytes: float, share: float) -> tuple[PerformanceTarget, ...]:
    """Return two targets for each label: a speed in GB/s, and a share of `PEAK`."""
    speeds = (PerformanceTarget(label, "speed", at_least=gigabytes) for label in labels)
    return (*speeds, *(PerformanceTarget(label, "speed", at_least=share, over=PEAK.label) for label in labels))


STREAMING_CASES = (
    Case(
        name="gpu-images",
        title="4 GiB of 224x224x3 uint8, batch 256, shuffled, streamed",
        meaning="The device reads one element per row of every batch, and the clock stops after that. The bench "
        "compares the first batch byte by byte, and whole epochs by their sum. CPU cores: mean number of busy "
        "cores, over all processes of a loader.",
        work=IMAGES,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(PEAK, TO_TORCH, TO_JAX, TO_TENSORFLOW, TO_CUPY, TO_TORCH_ONE_CPU, *PEERS, *DALI),
        baseline=PEAK.label,
        targets=(
            *_link_speed_targets(TO_TORCH.label, TO_JAX.label, TO_TENSORFLOW.label, gigabytes=47, share=0.86),
            PerformanceTarget(TO_TORCH.label, "cpu", at_most=0.25),
            PerformanceTarget(TO_TORCH_ONE_CPU.label, "cpu", at_most=0.25),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-images-busy",
        title="gpu-images while the GPU computes 8192^3 fp32 products on another stream",
        meaning="compute slowed: the time of a product while the loader runs, divided by its time without a loader.",
        work=IMAGES,
        meter="device_busy",
        columns=(SPEED, ResultColumn("slowed", "x", "compute slowed")),
        entries=(Entry(PEAK.label, "gpu_dma_peak_busy", PEAK.options), TO_TORCH, SPDL, TORCH_INDEX),
        baseline=PEAK.label,
        targets=(
            PerformanceTarget(TO_TORCH.label, "speed", at_least=42),
            PerformanceTarget(TO_TORCH.label, "slowed", at_most=1.02),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-images-npy",
        title="gpu-images from a mapped .npy file in the page cache",
        meaning="Forebay takes the rows directly from the page cache. It makes no copy of the file in its own memory.",
        work=IMAGES,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            PEAK,
            Entry("forebay .npy to torch", "gpu_forebay_torch", {"to": "torch", "source": "files", "file": "npy"}),
        ),
        baseline=PEAK.label,
        files=("npy",),
        targets=(PerformanceTarget("forebay .npy to torch", "speed", at_least=45),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-rows",
        title="4 GiB of 100 float32, batch 8192, shuffled, streamed",
        meaning="The device reads rows of 400 bytes in random order. These random reads are the limit, not bandwidth.",
        work=ROWS,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(PEAK, TO_TORCH, TO_JAX, TO_TENSORFLOW, TO_CUPY, *PEERS),
        baseline=PEAK.label,
        targets=(PerformanceTarget(TO_TORCH.label, "speed", at_least=30),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-rows-one-thread",
        title="gpu-rows in a process that may use one CPU",
        meaning="This is the speed on a host whose other CPUs are busy.",
        work=ROWS,
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(
            PEAK,
            TO_TORCH_ONE_CPU,
            Entry("torch index + pin, one CPU", "gpu_torch_index", {"to": "torch", "cpus": 1}),
        ),
        baseline=PEAK.label,
        targets=(PerformanceTarget(TO_TORCH_ONE_CPU.label, "speed", at_least=25),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
)


def _resident_case(name: str, title: str, work: Workload, *, torch: float, jax: float) -> Case:
    return Case(
        name=name,
        title=title,
        meaning="The device reads one element per row of every batch. Nothing crosses the link.",
        work=replace(work, options={**STREAMED, "resident": "always"}),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(INDEX_SELECT, TO_TORCH, TO_JAX, TO_TENSORFLOW),
        baseline=INDEX_SELECT.label,
        targets=(
            PerformanceTarget(TO_TORCH.label, "speed", at_least=torch),
            PerformanceTarget(TO_JAX.label, "speed", at_least=jax),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    )


OTHER_CASES = (
    _resident_case(
        "gpu-resident-images", "4 GiB of images resident on the GPU, batch 256, shuffled", IMAGES, torch=1500, jax=1500
    ),
    _resident_case(
        "gpu-resident-rows",
        "4 GiB of 100 float32 resident on the GPU, batch 8192, shuffled",
        ROWS,
        torch=1100,
        jax=1100,
    ),
    Case(
        name="gpu-resident",
        title="4 GiB of images resident on the GPU, batch 256, shuffled on the GPU",
        meaning="The device sums all bytes of every batch, as 64-bit words. Nothing crosses the link.",
        work=Workload(IMAGES.rows, IMAGES.shape, IMAGES.batch, dtype=IMAGES.dtype, options=RESIDENT),
        meter="device_throughput",
        columns=(SPEED, CORES),
        entries=(INDEX_SELECT, TO_TORCH),
        baseline=INDEX_SELECT.label,
        targets=(PerformanceTarget(TO_TORCH.label, "speed", at_least=1200),),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-first-batch",
        title="first shuffled batch of 4 GiB of images",
        meaning="made: time to make the loader. first batch: from iter() until the batch is on the device. cold: both "
        "together, for the first loader of a process.",
        work=IMAGES,
        meter="device_first_batch",
        columns=(
            ResultColumn("made", "ms", "made"),
            ResultColumn("first", "ms", "first batch"),
            ResultColumn("cold", "ms", "cold"),
        ),
        entries=(TO_TORCH, TO_JAX, TO_TENSORFLOW, TORCH_INDEX, LOADER),
        targets=tuple(
            PerformanceTarget(entry.label, "first", at_most=50) for entry in (TO_TORCH, TO_JAX, TO_TENSORFLOW)
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
    Case(
        name="gpu-step",
        title="a training step that takes slightly longer than the copy of its batch",
        meaning="fed: the step with a loader. resident: the step on one batch that stays on the GPU. slowed: "
        "fed divided by resident. compute: resident divided by the fastest copy of a batch.",
        work=IMAGES,
        meter="device_step",
        columns=(
            ResultColumn("fed", "ms", "fed"),
            ResultColumn("alone", "ms", "resident"),
            ResultColumn("slowed", "x", "slowed"),
            ResultColumn("compute", "x", "compute"),
        ),
        entries=(PREFETCHED_COPIES, TO_TORCH, TO_JAX, TO_TENSORFLOW, SPDL, TF_DATA),
        targets=(
            PerformanceTarget(TO_TORCH.label, "slowed", at_most=1.03),
            PerformanceTarget(TO_JAX.label, "slowed", at_most=1.03),
            PerformanceTarget(TO_TENSORFLOW.label, "slowed", at_most=1.05),
        ),
        timeout_seconds=TIMEOUT_SECONDS,
    ),
)


def _keras_case(backend: str, name: str, framework: str, *other_loaders: Entry) -> Case:
    one_batch = Entry("one batch on the GPU", f"gpu_keras_{backend}_again")  # repeats one batch
    forebay_contender = f"gpu_forebay_keras_{backend}"
    return Case(
        name=name,
        title=f"Keras fit on {framework}, a small CNN on 64x64x3 float32, batch 256",
        meaning="ms per step with the defaults of fit, and the ratio to fit on one batch that stays on the GPU.",
        work=Workload(80 * 256, (64, 64, 3), 256, options={**_KERAS_OPTIONS, "backend": backend}),
        meter="keras_fit",
        columns=(ResultColumn("step", "ms", "step", ratio=True),),
        entries=(
            one_batch,
            Entry("forebay", forebay_contender),
            Entry("forebay streamed", forebay_contender, {"resident": "never"}),
            *other_loaders,
            Entry("NumPy arrays", f"gpu_keras_{backend}_arrays"),
        ),
        baseline=one_batch.label,
        targets=(PerformanceTarget("forebay", "step", at_most=1.05, over=one_batch.label),),
        timeout_seconds=TIMEOUT_SECONDS,
    )


_KERAS_OPTIONS = {"environment": ENVIRONMENT, "numbered": True}

KERAS_CASES = (
    _keras_case("tensorflow", "gpu-keras", "TensorFlow", Entry("tf.data shuffle(4096)", "gpu_keras_tf_data")),
    _keras_case("jax", "gpu-keras-jax", "JAX"),
    _keras_case("torch", "gpu-keras-torch", "torch"),
)


def _sampler(label: str, choice: str) -> Entry:
    options = {"to": "torch", "choice": choice, "chooses_rows": True, "workers": 14}
    return Entry(label, "gpu_torch_sampler", options)


def _choice_case(framework: str, *others: Entry) -> Case:
    contender, to_framework = f"gpu_forebay_{framework}", {"to": framework}
    return Case(
        name=f"gpu-chosen-rows-{framework}",
        title=f"10M x 100 float32 to {framework}, batch 8192: half of the rows, weighted sampling, three sources",
        meaning="The pipelines choose or combine rows. The baseline is a plain shuffle of all rows.",
        work=ROWS,
        meter="device_throughput",
        columns=(SPEED,),
        entries=(
            Entry(PLAIN_SHUFFLE, contender, to_framework),
            *(
                Entry(label, contender, {**to_framework, "source": source, "chooses_rows": True})
                for label, source in CHOICES.items()
            ),
            *others,
        ),
        baseline=PLAIN_SHUFFLE,
        targets=tuple(PerformanceTarget(label, "speed", at_least=0.9, over=PLAIN_SHUFFLE) for label in CHOICES),
        timeout_seconds=TIMEOUT_SECONDS,
    )


CHOICE_CASES = (
    _choice_case(
        "torch",
        _sampler("SubsetRandomSampler, tuned, 14 + pin", "select"),
        _sampler("WeightedRandomSampler, tuned, 14 + pin", "sample"),
    ),
    _choice_case("jax", Entry("Grain mix + device_put", "gpu_grain_mixture", {"to": "jax", "chooses_rows": True})),
    _choice_case(
        "tensorflow",
        Entry("tf.data sample_from_datasets", "gpu_tf_mixture", {"to": "tensorflow", "chooses_rows": True}),
    ),
)

GPU_CASES: tuple[Case, ...] = (*STREAMING_CASES, *OTHER_CASES, *CHOICE_CASES, *GPU_DATA_CASES, *KERAS_CASES)
