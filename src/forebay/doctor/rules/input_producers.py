"""The producers of batches: which input stage is slow, and what more producers save."""

import re
from dataclasses import dataclass
from math import ceil

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.analyse.costs import cost_of, cost_on_any_thread
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu
from forebay.doctor.analyse.host_lines import samples_inside
from forebay.doctor.model.events import EventKind, Line
from forebay.doctor.model.formatting import format_count, format_seconds
from forebay.doctor.predict.build_timeline import background_seconds
from forebay.doctor.predict.cure_changes import SMALL_GPU_BATCH_NBYTES
from forebay.doctor.predict.input_costs import FULL_SHARE, prefetch_in_processes, shortens_step
from forebay.doctor.rules.wording import nbytes_per_call

__all__ = [
    "SERIAL_MAP",
    "STORED_ROWS_CURE",
    "WORKERS_CURES",
    "PY_DATASET",
    "InputStage",
    "batches_of_epoch",
    "competes_with_producer",
    "count_cores",
    "count_producers",
    "find_slow_stage",
    "fits_in_memory",
    "generators_of",
    "is_in_background",
    "loader_line",
    "makes_batches_quickly",
    "producer_seconds",
    "reads_files",
    "stream_kinds",
    "count_workers",
    "worker_count",
    "worker_reason",
    "worker_settings",
    "workers_pay",
]

# Name of a stage. As a key in the detail of an event: the line of a tf.data map that handles one row at a time.
SERIAL_MAP = "mapped_at"
PY_DATASET = "PyDataset.__getitem__"  # API name of a stage of Keras, which makes whole batches
KERAS_GENERATOR = "generator"  # API name of a generator that Keras calls, which yields whole batches
# Titles of cures that add worker processes to a DataLoader.
WORKERS_CURES = ("use workers", "use one worker per core")
STORED_ROWS_CURE = "make all rows once, and use a feed"  # title of the cure
# Bytes of a batch; a batch of this size or less has small rows. Receiving a batch from a worker process takes the loop
# 0.1 to 1 ms (measured with PyTorch 2.11: 0.9 to 1.2 ms of CPU time on two slow cores, for any size up to 1.5 MB).
SMALL_BATCH_NBYTES = 64 << 10
MAX_STORED_NBYTES = 4 << 30  # bytes of all rows of a dataset that a script may make once and keep
STORED_SHARE = 0.1  # share of the host memory for these rows; while the script stacks them, they need twice as much
# Wait in seconds per batch from which worker processes pay: twice the time to receive a small batch from one.
MIN_PAYING_WAIT = 2e-3
# The same limit for batches below SMALL_GPU_BATCH_NBYTES, in a process that uses a GPU or has MANY_CORES. Measured with
# 16 workers on the virtual machine of an H200: a step of 12 ms, of which 8 ms were a wait for a batch of 0.3 MB, became
# longer. A step of 23 ms became 2.1 times as fast. Two scripts computed on the CPU and waited 5 and 6 ms for a batch of
# 0.3 MB; their steps of 11 and 9 ms took 16 and 19 ms with 16 workers.
MIN_PAYING_GPU_WAIT = 10e-3
MANY_CORES = 16  # the measured machine; one worker per core disturbs the threads of the step there
COMPETING_SHARE = 0.4  # share of the step; a thread that makes batches for a shorter time takes little from the loop
READING_SHARE = 0.5  # share of the time of a stage; if reading files takes more, the stage mainly reads files
# Functions that read or decode files: all of some packages, and some names in any package.
_READING = re.compile(
    r"^(PIL|av|cv2|decord|h5py|imageio|nibabel|pydicom|rasterio|soundfile|tarfile|tifffile|torchaudio|zipfile)\."
    r"|(^|\.)(fromfile|genfromtxt|imdecode|imread|load|load_\w+|loads|loadtxt|memmap|open|read|read_\w+|decode_\w+)$"
)
# Workers may need this many times as long for the batches of a step as the rest of the step takes. Without this margin,
# the number of workers would change from run to run if both times are about equal.
ENOUGH_SPEED = 1.15
MIN_FOREIGN_CORES = 0.1  # cores that other programs use; `worker_reason` does not mention fewer
MIN_SHARE = 0.5  # share of the wait; Python code that takes less is not the cause of the wait
# The same limit for loaders that call a generator. The loader's overhead per row can exceed the time of the generator.
MIN_GENERATOR_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class InputStage:
    """A stage of the input: Python code, a serial map, workers or the loader."""

    name: str  # "row", "batch", "collate", "map" or "generator" for Python code; SERIAL_MAP, "workers" or "loader"
    seconds: float  # seconds per step in the stage
    line: Line | None = None  # of the Python code, or of the serial map; None for other stages
    on_other_thread: bool = False  # another thread than that of the loop runs the Python code
    yields_batches: bool = False  # the stage is a generator of whole batches, not of rows
    site: CallSite | None = None  # the call site of the Python code; None for other stages

    @property
    def api(self) -> str:
        """The API name of Python code; empty for other stages."""
        return self.site.api if self.site is not None else ""

    @property
    def is_python(self) -> bool:
        """Whether the stage is Python code of the user."""
        return self.name not in (SERIAL_MAP, "workers", "loader")


def find_slow_stage(view: CaptureView, site: CallSite) -> InputStage:
    """Return the stage that the loop waits for at a call site of its input.

    This is the user's slowest Python code, on any thread, if it takes a large enough share of the wait. Otherwise it is
    a serial map, the workers or the loader.
    """
    wait = cost_of(view, site.events)
    costs = [
        (cost_on_any_thread(view, stage_site.events), stage_site) for stage_site in view.sites_of(EventKind.PREPARE)
    ]
    cost, slowest = max(costs, key=lambda pair: pair[0], default=(0.0, None))
    least_share = MIN_GENERATOR_SHARE if "generator" in site.values("loader") else MIN_SHARE
    if slowest is not None and cost >= least_share * wait and cost > 0:
        assert view.steps is not None
        yields_batches = slowest.api == KERAS_GENERATOR and not any(site.values("batch_rows"))
        on_other_thread = all(event.thread != view.steps.thread for event in slowest.events)
        what = "batch" if slowest.api == PY_DATASET else str(next(iter(slowest.values("what")), "row"))
        return InputStage(what, cost, slowest.line, on_other_thread, yields_batches, slowest)
    if not costs and "tf.data" in site.values("loader") and (map_lines := site.values(SERIAL_MAP)):
        return InputStage(SERIAL_MAP, wait, view.line(map_lines[0]))
    return InputStage("workers" if count_workers(site) else "loader", wait)


def reads_files(view: CaptureView, stage: InputStage) -> bool:
    """Whether a stage spends most of its time in functions that read or decode files."""
    samples = samples_inside(view, stage.site.events) if stage.site is not None else []
    total = sum(sample.nanoseconds for sample in samples)
    reading = sum(sample.nanoseconds for sample in samples if _READING.search(sample.function))
    return reading > READING_SHARE * total


def is_in_background(view: CaptureView, stage: InputStage) -> bool:
    """Whether another thread makes batches in Python while the step computes on the CPU."""
    return stage.is_python and stage.on_other_thread and not computes_on_gpu(view)


def competes_with_producer(view: CaptureView, site: CallSite) -> bool:
    """Whether the thread that makes batches slows the loop down, even without long waits.

    Both need the GIL and the cores. The thread slows the loop down if it works for a large share of the step, and if
    almost all cores are busy.
    """
    busy, foreign = (view.capture.facts.get(name) for name in ("busy_cores", "foreign_cores"))
    if not isinstance(busy, int | float) or not is_in_background(view, find_slow_stage(view, site)):
        return False
    assert view.steps is not None  # without steps, there is no call site
    used = busy + (foreign if isinstance(foreign, int | float) else 0.0)
    is_busy = used >= FULL_SHARE * count_cores(view)
    return is_busy and background_seconds(view) >= COMPETING_SHARE * view.steps.mean_seconds


def loader_line(view: CaptureView, site: CallSite) -> Line | None:
    """Return the line that builds the loader of a call site.

    Older captures, and those of tf.data, do not name this line. For them, return the only line that builds a loader. If
    there are several, return the line that waits for the loader.
    """
    for index in site.values("built_at"):
        return view.line(index) or site.line
    names = {site.api, *site.values("loader")} | ({"Dataset"} if "tf.data" in site.values("loader") else set())
    lines = {event.line for event in view.events_of(EventKind.BUILD) if (event.detail or {}).get("what") in names}
    return (view.line(lines.pop()) if len(lines) == 1 else None) or site.line


def count_workers(site: CallSite) -> int:
    """Return the number of worker processes; 0 without workers, or if it is unknown."""
    return max((int(workers) for workers in site.values("workers") if workers), default=0)


def count_producers(site: CallSite) -> int:
    """Return the number of workers; without workers, 1 for a prefetching thread, else 0."""
    return count_workers(site) or int(any(site.values("prefetch")))


def count_cores(view: CaptureView) -> int:
    return int(view.capture.machine.get("cores") or 1)


def fits_in_memory(view: CaptureView, site: CallSite) -> bool:
    """Whether all rows of a loader fit in memory, and seem equal in every epoch.

    They seem equal if the hooks found no random numbers in the code that makes them.
    """
    batches = batches_of_epoch(view, site)
    if not batches or any(detail.get("random_rows", True) for detail in view.loader_details(site)):
        return False
    nbytes = nbytes_per_call(site) * batches
    memory = view.capture.machine.get("memory_nbytes") or 0
    return bool(nbytes <= min(MAX_STORED_NBYTES, STORED_SHARE * memory))


def batches_of_epoch(view: CaptureView, site: CallSite) -> float:
    """Return how many batches a loader makes in an epoch; 0.0 if unknown."""
    rows = [detail.get("dataset_rows") for detail in view.loader_details(site)]
    per_batch = [count for count in site.values("batch_rows") if isinstance(count, int) and count > 0]
    return max((count for count in rows if isinstance(count, int)), default=0) / max(per_batch, default=1)


def generators_of(view: CaptureView, site: CallSite) -> list[str]:
    """Return the generators of random numbers that the dataset holds, such as "transform.rng: Generator"."""
    found = (str(detail.get("generators") or "") for detail in view.loader_details(site))
    return [*dict.fromkeys(each for text in found for each in text.split(", ") if each)]


def stream_kinds(view: CaptureView, site: CallSite) -> set[str]:
    """Return "divided" or "whole" for the streams that a loader reads.

    The worker processes divide the rows of a "divided" stream. Each of them yields all rows of a "whole" stream. The
    result is empty if the dataset has row numbers, or if its kind is unknown.
    """
    return {str(detail["stream"]) for detail in view.loader_details(site) if detail.get("stream")}


def worker_settings(view: CaptureView, site: CallSite, wait: float) -> dict[str, str]:
    """Return the arguments of a DataLoader with workers; `wait` is in seconds per step."""
    return {"num_workers": str(worker_count(view, site, wait)), "persistent_workers": "True"}


def worker_count(view: CaptureView, site: CallSite, making: float) -> int:
    """Return how many workers to use, if one would need `making` seconds per step.

    With a GPU, or if the loader already has producers, this is one worker per core. Otherwise the step needs the cores
    too. The number of workers is then the smallest one that makes batches about as fast as the rest of the step takes
    them, or as fast as the cores that other programs leave free allow.
    """
    cores = count_cores(view)
    if computes_on_gpu(view) or count_producers(site):
        return cores
    rest = _rest_seconds(view, site, making)
    shortest = max(rest, making / cores, _cpu_seconds(view) / max(1.0, cores - _foreign_cores(view)))
    return max(1, min(cores, ceil(making / (ENOUGH_SPEED * shortest)))) if rest > 0 else cores


def worker_reason(view: CaptureView, site: CallSite, making: float) -> str:
    """Return sentences that give the reason for the result of `worker_count`."""
    cores, foreign, workers = count_cores(view), _foreign_cores(view), worker_count(view, site, making)
    others = f", of which other programs use {foreign:.1f}" if foreign >= MIN_FOREIGN_CORES else ""
    one, rest = (format_seconds(seconds) for seconds in (making, _rest_seconds(view, site, making)))
    return (
        f"{format_count(cores, 'core')}{others}: {format_count(workers, 'worker')}. One worker makes the batches of a "
        f"step in {one}, and the rest of the step takes {rest}."
    )


def _rest_seconds(view: CaptureView, site: CallSite, making: float) -> float:
    """Return the seconds of a step without those in which the loop makes batches."""
    return view.step_seconds - min(making, cost_of(view, site.events))


def _cpu_seconds(view: CaptureView) -> float:
    """Return the CPU time of a step; 0.0 if unknown."""
    busy = view.capture.facts.get("busy_cores")
    return busy * view.step_seconds if isinstance(busy, int | float) else 0.0


def _foreign_cores(view: CaptureView) -> float:
    """Return the cores that other programs use; 0.0 if unknown."""
    foreign = view.capture.facts.get("foreign_cores")
    return float(foreign) if isinstance(foreign, int | float) else 0.0


def makes_batches_quickly(view: CaptureView, site: CallSite, wait: float) -> bool:
    """Whether receiving a batch from a worker process takes as long as making it."""
    per_batch = wait / site.per_step if site.per_step else 0.0
    nbytes = nbytes_per_call(site)
    if (view.device is not None or count_cores(view) >= MANY_CORES) and nbytes < SMALL_GPU_BATCH_NBYTES:
        return per_batch < MIN_PAYING_GPU_WAIT
    return nbytes <= SMALL_BATCH_NBYTES and per_batch < MIN_PAYING_WAIT


def workers_pay(view: CaptureView, site: CallSite, wait: float) -> bool:
    """Whether worker processes save more time than receiving their batches takes.

    `wait` is in seconds per step. Without a GPU, the workers also need cores that the step does not use. Workers of a
    stream whose rows they do not divide save nothing, because each of them makes all rows.
    """
    if makes_batches_quickly(view, site, wait) or "whole" in stream_kinds(view, site):
        return False
    if computes_on_gpu(view):
        return True
    return shortens_step(view, prefetch_in_processes(view, site, producer_seconds(view, site, wait)))


def producer_seconds(view: CaptureView, site: CallSite, wait: float) -> float:
    """Return the seconds that producers, one per core, need for the batches of a step.

    Assume that the work is divided equally among the workers. Without producers, the loop makes the batches itself, so
    they take one core as long as the wait. With producers, each producer is busy for the whole step.
    """
    producers = count_producers(site)
    return view.step_seconds * producers / count_cores(view) if producers else wait / worker_count(view, site, wait)
