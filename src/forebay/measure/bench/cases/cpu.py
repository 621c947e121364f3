"""The CPU cases of `forebay bench`: workloads, entries and performance targets.

Every loader has an entry with the settings that an expert user would choose. DataLoader also has entries that follow
its tutorial. The table also shows entries that are faster than Forebay.
"""

from forebay.measure.bench.cases.choices import CHOICE_CASES
from forebay.measure.bench.cases.disk import DISK_CASES
from forebay.measure.bench.cases.first_batches import FIRST_BATCH_CASES
from forebay.measure.bench.cases.lengths import LENGTH_CASES
from forebay.measure.bench.cases.tables import TABLE_CASES
from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["CASES"]

THROUGHPUT_COLUMNS = (
    ResultColumn("idle", "rows/s", "idle rows/s", ratio=True),  # the consumer only takes batches
    ResultColumn("busy", "rows/s", "busy rows/s", ratio=True),  # the consumer runs a step after every batch
    ResultColumn("step", "x", "step"),  # time of this step while the loader runs, divided by its time without a loader
)

TAKE_LOOP = Entry("np.take loop", "floor")  # "floor" is the contender of one thread that only calls np.take
LOADERS = (
    TAKE_LOOP,
    Entry("forebay", "forebay"),
    Entry("Keras array adapter", "keras_adapter"),
    Entry("tf.data shuffle(4096)", "tf_slices"),
    Entry("DataLoader tuned", "torch_tuned"),
    Entry("DataLoader", "torch_loader", {"workers": 0}),
    Entry("DataLoader 2 workers", "torch_loader", {"workers": 2}),
    Entry("Grain 2 threads", "grain_loader"),
)

_STEP_TARGET = PerformanceTarget("forebay", "step", at_most=1.2)

CASES: tuple[Case, ...] = (
    Case(
        name="rows-1024",
        title="1M x 100 float32, batch 1024, shuffled",
        meaning="Batches are large and have small rows. The limit is the speed of memory.",
        work=Workload(1_000_000, (100,), 1024),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=LOADERS,
        baseline=TAKE_LOOP.label,
        targets=(
            PerformanceTarget("forebay", "idle", at_least=1.2, over="np.take loop"),
            PerformanceTarget("forebay", "idle", at_least=1.8, over="Keras array adapter"),
            PerformanceTarget("forebay", "idle", at_least=20, over="tf.data shuffle(4096)"),
            PerformanceTarget("forebay", "idle", at_least=5, over="DataLoader tuned"),
            _STEP_TARGET,
        ),
    ),
    Case(
        name="rows-32",
        title="1M x 100 float32, batch 32, shuffled",
        meaning="Batches are small. The limit is the Python code that a loader runs for each batch.",
        work=Workload(1_000_000, (100,), 32),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=LOADERS,
        baseline=TAKE_LOOP.label,
        targets=(
            PerformanceTarget("forebay", "idle", at_least=2, over="np.take loop"),
            PerformanceTarget("forebay", "idle", at_least=15, over="tf.data shuffle(4096)"),
            _STEP_TARGET,
        ),
    ),
    Case(
        name="images",
        title="10k x 64x64x3 float32, batch 256, shuffled",
        meaning="Rows are large. Loaders spend most of the time on copies, so threads and reused memory help most.",
        work=Workload(10_000, (64, 64, 3), 256),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=LOADERS,
        baseline=TAKE_LOOP.label,
        targets=(PerformanceTarget("forebay", "idle", at_least=1.4, over="np.take loop"), _STEP_TARGET),
    ),
    Case(
        name="files",
        title="1M x 100 float32 in a file, batch 1024, shuffled",
        meaning="The files are mapped, and in the page cache. The baseline has the same rows in RAM.",
        work=Workload(1_000_000, (100,), 1024),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("forebay RAM", "forebay"),
            Entry("forebay .npy", "forebay", {"source": "files", "file": "npy"}),
            Entry("forebay stored .npz", "forebay", {"source": "files", "file": "npz"}),
            Entry("np.take mapped .npy", "floor", {"file": "npy"}),
        ),
        baseline="forebay RAM",
        files=("npy", "npz"),
        targets=(
            PerformanceTarget("forebay .npy", "idle", at_least=0.9, over="forebay RAM"),
            PerformanceTarget("forebay stored .npz", "idle", at_least=0.9, over="forebay RAM"),
        ),
    ),
    Case(
        name="image-folder",
        title="8k JPEG files of 500x375 to 224x224, batch 256, shuffled",
        meaning="The image files are in the page cache. The limit is the time to decode and resize. The first row "
        "calls the libraries of Forebay's decoder from plain threads.",
        work=Workload(
            8192, (224, 224, 3), 256, dtype="uint8", options={"file": "jpegs", "time_factor": 4.0, "drained_batches": 6}
        ),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("simplejpeg threads", "images_threads"),
            Entry("forebay", "images_forebay", {"source": "image_folder"}),
            Entry("forebay, Pillow", "images_forebay", {"source": "image_folder", "decoder": "pillow"}),
            Entry("tf.data", "images_tf"),
            Entry("DataLoader, Pillow", "images_torch_pillow"),
            Entry("DataLoader, torchvision", "images_torchvision"),
            Entry("Grain, Pillow", "images_grain"),
            Entry("DALI on the CPU", "images_dali"),
        ),
        baseline="simplejpeg threads",
        files=("jpegs",),
        targets=(
            PerformanceTarget("forebay", "idle", at_least=0.9, over="simplejpeg threads"),
            PerformanceTarget("forebay", "idle", at_least=1.5, over="tf.data"),
            PerformanceTarget("forebay", "idle", at_least=1.5, over="DataLoader, Pillow"),
        ),
    ),
    Case(
        name="image-shards",
        title="2k JPEG files of 500x375 in 8 .tar files to 224x224, batch 256, shuffled",
        meaning="The archives are in the page cache. WebDataset shuffles the archives, and 1000 images in each worker. "
        "Forebay shuffles all images.",
        work=Workload(
            2048,
            (224, 224, 3),
            256,
            dtype="uint8",
            options={"file": "image_shards", "time_factor": 4.0, "drained_batches": 2},
        ),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("WebDataset, Pillow", "images_webdataset"),
            Entry("forebay", "images_forebay", {"source": "image_shards"}),
        ),
        baseline="WebDataset, Pillow",
        files=("image_shards",),
        targets=(PerformanceTarget("forebay", "idle", at_least=1.5, over="WebDataset, Pillow"),),
    ),
    Case(
        name="cached-images",
        title="1k JPEG files of 500x375 to 224x224 with cache(), batch 256, shuffled, after the first epoch",
        meaning="A cache keeps the decoded images. The baseline has the same images in arrays.",
        work=Workload(1024, (224, 224, 3), 256, dtype="uint8", options={"file": "jpegs"}),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("forebay arrays", "images_forebay", {"source": "decoded_images"}),
            Entry("forebay cache in RAM", "images_forebay", {"source": "cached_images", "cache": "ram"}),
            Entry("forebay cache on disk", "images_forebay", {"source": "cached_images", "cache": "disk"}),
            Entry("tf.data cache", "images_tf", {"cache": "ram"}),
        ),
        baseline="forebay arrays",
        files=("jpegs",),
        targets=(
            PerformanceTarget("forebay cache in RAM", "idle", at_least=0.9, over="forebay arrays"),
            PerformanceTarget("forebay cache on disk", "idle", at_least=0.9, over="forebay arrays"),
            PerformanceTarget("forebay cache in RAM", "idle", at_least=2, over="tf.data cache"),
        ),
    ),
    Case(
        name="length-buckets",
        title="50k texts of different length, padded batches of at most 8192 numbers, shuffled",
        meaning="Texts of similar length form a batch. The limit is the time to copy and pad short rows. 'padding' is "
        "the share of the batches that is padding.",
        work=Workload(50_000, (), 80, dtype="int32", options={"tokens": 8192, "longest": 2048, "time_factor": 2.0}),
        meter="padded_rows",
        columns=(ResultColumn("rows", "rows/s", "rows/s", ratio=True), ResultColumn("padding", "%", "padding")),
        entries=(
            Entry("NumPy loop", "lengths_loop"),
            Entry("forebay", "lengths_forebay", {"source": "texts"}),
            Entry("forebay to torch", "lengths_forebay", {"source": "texts", "to": "torch"}),
            Entry("tf.data buckets", "lengths_tf"),
            Entry("DataLoader, bucket sampler", "lengths_torch", {"workers": 0}),
            Entry("DataLoader, 2 workers", "lengths_torch", {"workers": 2}),
        ),
        baseline="NumPy loop",
        targets=(
            PerformanceTarget("forebay", "rows", at_least=2, over="tf.data buckets"),
            PerformanceTarget("forebay", "rows", at_least=1.5, over="DataLoader, bucket sampler"),
            PerformanceTarget("forebay", "padding", at_most=10),
        ),
    ),
    Case(
        name="handoff",
        title="hand-off of one 32 x 16 float32 array",
        meaning="Time to turn a NumPy batch into an array of the framework. Lower is better.",
        work=Workload(200_000, (16,), 32),
        meter="handoff",
        columns=(ResultColumn("cpu", "us", "CPU time"), ResultColumn("clock", "us", "elapsed time")),
        entries=(
            Entry("forebay to torch", "forebay_torch", {"to": "torch"}),
            Entry("torch.from_numpy", "torch_call", {"to": "torch"}),
            Entry("forebay to TensorFlow", "forebay_tensorflow", {"to": "tensorflow"}),
            Entry("tf.convert_to_tensor", "tf_call", {"to": "tensorflow"}),
            Entry("forebay to JAX", "forebay_jax", {"to": "jax"}),
            Entry("jax.device_put", "jax_call", {"to": "jax"}),
        ),
        targets=(
            PerformanceTarget("forebay to torch", "cpu", at_most=2),
            PerformanceTarget("forebay to TensorFlow", "cpu", at_most=4),
            PerformanceTarget("forebay to JAX", "cpu", at_most=15),
        ),
    ),
    Case(
        name="generator",
        title="generator of 100-float rows, batch 1024",
        meaning="A Python generator makes the rows. The limit is the speed of the generator, which holds the GIL.",
        work=Workload(200_000, (100,), 1024),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("loop into an array", "row_loop"),
            Entry("forebay", "forebay", {"source": "generator"}),
            Entry("tf.data from_generator", "tf_generator"),
            Entry("DataLoader iterable", "torch_iterable"),
        ),
        baseline="loop into an array",
        targets=(
            PerformanceTarget("forebay", "idle", at_least=0.7, over="loop into an array"),
            PerformanceTarget("forebay", "idle", at_least=50, over="tf.data from_generator"),
            _STEP_TARGET,
        ),
    ),
    Case(
        name="python-map",
        title="a pure-Python map of about 5 ms per batch, two workers",
        meaning="The map holds the GIL, so only processes can run it in parallel.",
        work=Workload(20_000, (100,), 64),
        meter="throughput",
        columns=THROUGHPUT_COLUMNS,
        entries=(
            Entry("in line", "floor", {"map": True}),
            Entry("forebay 2 processes", "forebay", {"source": "map", "where": "process"}),
            Entry("forebay threads", "forebay", {"source": "map", "where": "thread"}),
            Entry("DataLoader 2 workers", "torch_tuned", {"map": True, "workers": 2}),
        ),
        baseline="in line",
        targets=(PerformanceTarget("forebay 2 processes", "idle", at_least=1.7, over="in line"),),
    ),
    Case(
        name="first-batch",
        title="first shuffled batch of 1 billion rows",
        meaning="first batch: time to make a loader and receive its first batch. cold: this time for the first loader "
        "of a process, with imports. Lower is better. A loader that first permutes all rows is slow.",
        work=Workload(1_000_000_000, (), 1024, dtype="uint8"),
        meter="first_batch",
        columns=(ResultColumn("first", "ms", "first batch"), ResultColumn("cold", "ms", "cold")),
        entries=(
            Entry("forebay", "forebay", {"source": "files", "file": "sparse"}),
            Entry("np.take loop", "floor", {"file": "sparse"}, repeats=1),
        ),
        files=("sparse",),
        targets=(PerformanceTarget("forebay", "first", at_most=100),),
    ),
    Case(
        name="memory",
        title="memory over 50 epochs, budget 64 MiB",
        meaning="Memory of the process (RssAnon + RssShmem) beyond the data. 'grown': the peak. '2nd half over 1st': "
        "the peak of the later 25 epochs minus the peak of the first 25. 'per epoch': growth in the later 25 epochs.",
        work=Workload(100_000, (100,), 1024, options={"epochs": 50, "host_bytes": 64 * 2**20}),
        meter="memory",
        columns=(
            ResultColumn("grown", "MiB", "grown"),
            ResultColumn("late", "MiB", "2nd half over 1st"),
            ResultColumn("slope", "KiB", "per epoch"),
        ),
        entries=(
            Entry("np.take loop", "floor", repeats=1),
            Entry("forebay", "forebay", repeats=1),
            Entry("Keras array adapter", "keras_adapter", repeats=1),
            Entry("DataLoader tuned", "torch_tuned", repeats=1),
        ),
        targets=(PerformanceTarget("forebay", "grown", at_most=128), PerformanceTarget("forebay", "late", at_most=8)),
    ),
    *CHOICE_CASES,
    *LENGTH_CASES,
    *FIRST_BATCH_CASES,
    *TABLE_CASES,
    *DISK_CASES,
)
