"""The rows of the table: what is measured, who takes part, and what this project promises.

Every peer is used the best way its users know, and a losing row stays.
"""

from forebay.measure.bench.cases.disk import DISK_CASES
from forebay.measure.bench.model import Case, Column, Entry, Target, Work

__all__ = ["CASES"]

IDLE = Column("idle", "rows/s", "idle rows/s", ratio=True)
BUSY = Column("busy", "rows/s", "busy rows/s", ratio=True)
STEP = Column("step", "x", "step")
LOADING = (IDLE, BUSY, STEP)

FLOOR = Entry("np.take loop", "floor")
FOREBAY = Entry("forebay", "forebay")
LOADERS = (
    FLOOR,
    FOREBAY,
    Entry("Keras array adapter", "keras_adapter"),
    Entry("tf.data shuffle(4096)", "tf_slices"),
    Entry("DataLoader tuned", "torch_tuned"),
    Entry("DataLoader", "torch_loader", {"workers": 0}),
    Entry("DataLoader 2 workers", "torch_loader", {"workers": 2}),
    Entry("Grain 2 threads", "grain_loader"),
)

_STEP_KEPT = Target("forebay", "step", at_most=1.2)

CASES: tuple[Case, ...] = (
    Case(
        name="rows-1024",
        title="1M x 100 float32, batch 1024, shuffled",
        meaning="Small rows in large batches: how close each loader comes to the memory's own speed.",
        work=Work(1_000_000, (100,), 1024),
        meter="throughput",
        columns=LOADING,
        entries=LOADERS,
        baseline=FLOOR.label,
        targets=(
            Target("forebay", "idle", at_least=1.2, over="np.take loop"),
            Target("forebay", "idle", at_least=1.8, over="Keras array adapter"),
            Target("forebay", "idle", at_least=20, over="tf.data shuffle(4096)"),
            Target("forebay", "idle", at_least=5, over="DataLoader tuned"),
            _STEP_KEPT,
        ),
    ),
    Case(
        name="rows-32",
        title="1M x 100 float32, batch 32, shuffled",
        meaning="Small batches: what a loader costs in Python for every batch.",
        work=Work(1_000_000, (100,), 32),
        meter="throughput",
        columns=LOADING,
        entries=LOADERS,
        baseline=FLOOR.label,
        targets=(
            Target("forebay", "idle", at_least=2, over="np.take loop"),
            Target("forebay", "idle", at_least=15, over="tf.data shuffle(4096)"),
            _STEP_KEPT,
        ),
    ),
    Case(
        name="images",
        title="10k x 64x64x3 float32, batch 256, shuffled",
        meaning="Large rows: mostly copying, so threads and reused memory decide.",
        work=Work(10_000, (64, 64, 3), 256),
        meter="throughput",
        columns=LOADING,
        entries=LOADERS,
        baseline=FLOOR.label,
        targets=(Target("forebay", "idle", at_least=1.4, over="np.take loop"), _STEP_KEPT),
    ),
    Case(
        name="files",
        title="1M x 100 float32 in a file, batch 1024, shuffled",
        meaning="Files in the page cache, mapped in place, beside the same rows in RAM.",
        work=Work(1_000_000, (100,), 1024),
        meter="throughput",
        columns=LOADING,
        entries=(
            Entry("forebay RAM", "forebay"),
            Entry("forebay .npy", "forebay", {"source": "files", "file": "npy"}),
            Entry("forebay stored .npz", "forebay", {"source": "files", "file": "npz"}),
            Entry("np.take mapped .npy", "floor", {"file": "npy"}),
        ),
        baseline="forebay RAM",
        files=("npy", "npz"),
        targets=(
            Target("forebay .npy", "idle", at_least=0.9, over="forebay RAM"),
            Target("forebay stored .npz", "idle", at_least=0.9, over="forebay RAM"),
        ),
    ),
    Case(
        name="handoff",
        title="hand-off of one 32 x 16 float32 array",
        meaning="Time added to a batch by making it the framework's own array; lower is better.",
        work=Work(200_000, (16,), 32),
        meter="handoff",
        columns=(Column("cpu", "us", "CPU time"), Column("clock", "us", "by the clock")),
        entries=(
            Entry("forebay to torch", "forebay_torch", {"to": "torch"}),
            Entry("torch.from_numpy", "torch_call", {"to": "torch"}),
            Entry("forebay to TensorFlow", "forebay_tensorflow", {"to": "tensorflow"}),
            Entry("tf.convert_to_tensor", "tf_call", {"to": "tensorflow"}),
            Entry("forebay to JAX", "forebay_jax", {"to": "jax"}),
            Entry("jax.device_put", "jax_call", {"to": "jax"}),
        ),
        targets=(
            Target("forebay to torch", "cpu", at_most=2),
            Target("forebay to TensorFlow", "cpu", at_most=4),
            Target("forebay to JAX", "cpu", at_most=15),
        ),
    ),
    Case(
        name="generator",
        title="generator of 100-float rows, batch 1024",
        meaning="A Python generator feeds the rows: its own speed is the limit, and its GIL the danger.",
        work=Work(200_000, (100,), 1024),
        meter="throughput",
        columns=LOADING,
        entries=(
            Entry("loop into an array", "row_loop"),
            Entry("forebay", "forebay", {"source": "generator"}),
            Entry("tf.data from_generator", "tf_generator"),
            Entry("DataLoader iterable", "torch_iterable"),
        ),
        baseline="loop into an array",
        targets=(
            Target("forebay", "idle", at_least=0.7, over="loop into an array"),
            Target("forebay", "idle", at_least=50, over="tf.data from_generator"),
            _STEP_KEPT,
        ),
    ),
    Case(
        name="python-map",
        title="a pure-Python map of some 5 ms a batch, two workers",
        meaning="A map that holds the GIL: only processes can share it out.",
        work=Work(20_000, (100,), 64),
        meter="throughput",
        columns=LOADING,
        entries=(
            Entry("in line", "floor", {"map": True}),
            Entry("forebay 2 processes", "forebay", {"source": "map", "where": "process"}),
            Entry("forebay threads", "forebay", {"source": "map", "where": "thread"}),
            Entry("DataLoader 2 workers", "torch_tuned", {"map": True, "workers": 2}),
        ),
        baseline="in line",
        targets=(Target("forebay 2 processes", "idle", at_least=1.7, over="in line"),),
    ),
    Case(
        name="first-batch",
        title="first shuffled batch of 1 billion rows",
        meaning="From nothing to the first batch; lower is better. A loader that permutes first pays here.",
        work=Work(1_000_000_000, (), 1024, dtype="uint8"),
        meter="first_batch",
        columns=(Column("first", "ms", "first batch"),),
        entries=(
            Entry("forebay", "forebay", {"source": "files", "file": "sparse"}),
            Entry("np.take loop", "floor", {"file": "sparse"}, repeats=1),
        ),
        files=("sparse",),
        targets=(Target("forebay", "first", at_most=100),),
    ),
    Case(
        name="memory",
        title="memory taken over 50 epochs, budget 64 MiB",
        meaning="RssAnon + RssShmem above the data itself: the most it grew, and how it went on once warm.",
        work=Work(100_000, (100,), 1024, options={"epochs": 50, "host_bytes": 64 * 2**20}),
        meter="memory",
        columns=(
            Column("grown", "MiB", "grown"),
            Column("late", "MiB", "2nd half over 1st"),
            Column("slope", "KiB", "an epoch"),
        ),
        entries=(
            Entry("np.take loop", "floor", repeats=1),
            Entry("forebay", "forebay", repeats=1),
            Entry("Keras array adapter", "keras_adapter", repeats=1),
            Entry("DataLoader tuned", "torch_tuned", repeats=1),
        ),
        targets=(Target("forebay", "grown", at_most=128), Target("forebay", "late", at_most=8)),
    ),
    *DISK_CASES,
)
