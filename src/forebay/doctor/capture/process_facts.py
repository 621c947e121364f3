"""Facts about the profiled process that rules need: settings, threads, devices, memory.

A query may initialise devices. So the doctor queries only loaded frameworks. It queries JAX, and the memory of PyTorch
and TensorFlow, only if the framework in question has initialised its devices.
"""

import os
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from forebay.core.machine import Machine
from forebay.doctor.capture.memory_samples import tensorflow_context, tensorflow_memory_limits

if sys.platform != "win32":
    import resource

__all__ = ["BusyCoreMeter", "descendant_cpu_seconds", "process_facts"]

INTERVAL_NS = 100_000_000  # least time between two readings of a BusyCoreMeter; a reading takes about 50 us
MAX_READINGS = 2000  # per run; these readings cover at least 200 seconds
MIN_SECONDS = 0.5  # least time of all profiled steps: the system counts CPU time in units of 10 ms
# Positions of fields in `/proc/PID/stat`, counted after the name of the process, which may contain spaces.
_PARENT, _FIRST_TIME, _FIRST_CHILD_TIME, _END_OF_TIMES = 1, 11, 13, 15
# Environment variables that configure the frameworks.
_SETTINGS = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "JAX_PLATFORMS",
    "KERAS_BACKEND",
    "MKL_NUM_THREADS",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "OMP_NUM_THREADS",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TF_CPP_MAX_VLOG_LEVEL",
    "TF_DETERMINISTIC_OPS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TORCH_DISTRIBUTED_DEBUG",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)


class _CpuTimes(NamedTuple):
    own: float  # CPU seconds of this process
    all: float | None  # CPU seconds of all processes of the machine; None if unknown
    now: float  # wall-clock seconds


class BusyCoreMeter:
    """Measures how many cores this process and all other processes keep busy, on average.

    The best measurement is that of unprofiled steps, between `start` and `stop`. A script may end before these steps.
    So `read` also collects readings during the profiled steps, and `measure` uses them.
    """

    def __init__(self) -> None:
        self.busy_cores: float | None = None  # of all threads of this process; None before `stop` or `measure`
        self.foreign_cores: float | None = None  # of all other processes, including descendants; None if unknown
        self.worker_cores: float | None = None  # of all descendants of this process; None if unknown
        self._started: _CpuTimes | None = None
        self._workers_started: float | None = None  # CPU seconds of all descendants when `start` was called
        self._readings: list[tuple[int, _CpuTimes]] = []
        self._next_time = 0

    def read(self, now: int) -> None:
        """Add a reading at the time `now` (ns), unless the last reading is recent."""
        if now >= self._next_time and len(self._readings) < MAX_READINGS:
            self._next_time = now + INTERVAL_NS
            self._readings.append((now, _read_cpu_times()))

    def start(self) -> None:
        self._workers_started = descendant_cpu_seconds()
        self._started = _read_cpu_times()

    def stop(self) -> None:
        """End the measurement that `start` has begun."""
        if self._started is not None:
            end, workers = _read_cpu_times(), descendant_cpu_seconds()
            self._set(self._started, end)
            seconds = end.now - self._started.now
            if workers is not None and self._workers_started is not None and seconds > 0:
                self.worker_cores = max(0.0, (workers - self._workers_started) / seconds)

    def measure(self, start: int, end: int) -> None:
        """Use the readings from `start` to `end` (nanoseconds), unless unprofiled steps were measured."""
        inside = [times for time, times in self._readings if start <= time <= end]
        if self.busy_cores is None and inside and inside[-1].now - inside[0].now >= MIN_SECONDS:
            self._set(inside[0], inside[-1])

    def _set(self, start: _CpuTimes, end: _CpuTimes) -> None:
        own, seconds = end.own - start.own, end.now - start.now
        if seconds <= 0:
            return
        self.busy_cores = own / seconds
        if start.all is not None and end.all is not None:
            self.foreign_cores = max(0.0, (end.all - start.all - own) / seconds)


def _read_cpu_times() -> _CpuTimes:
    return _CpuTimes(time.process_time(), _machine_cpu_seconds(), time.perf_counter())


def _machine_cpu_seconds(path: Path = Path("/proc/stat")) -> float | None:
    """Return the CPU seconds of all processes since the start of the machine.

    Return None if `path` does not exist, or if the file counts cores that this process may not use.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        cores = sum(line.startswith("cpu") for line in lines) - 1  # the first line is the sum of all cores
        _, user, nice, system, _, _, interrupts, soft_interrupts, steal, *_ = lines[0].split()
        if cores != Machine.detect().cores:
            return None
        ticks = sum(map(int, (user, nice, system, interrupts, soft_interrupts, steal)))
        return ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, IndexError, OSError, ValueError):
        return None


def descendant_cpu_seconds(process: int | None = None, folder: Path = Path("/proc")) -> float | None:
    """Return the CPU seconds of all descendants of a process; None if unknown.

    Descendants that have ended count too. This reads all processes of the machine, in about 30 us per process.
    """
    process = process or os.getpid()
    fields: dict[int, list[str]] = {}  # by process
    children: dict[int, list[int]] = defaultdict(list)
    try:
        for entry in folder.iterdir():
            if entry.name.isdigit() and (stat_fields := _stat_fields(entry / "stat")):
                fields[int(entry.name)] = stat_fields
                children[int(stat_fields[_PARENT])].append(int(entry.name))
        ticks = _add_ticks(fields[process][_FIRST_CHILD_TIME:_END_OF_TIMES])  # of children that have ended
        pending = list(children[process])
        while pending:
            child = pending.pop()
            ticks += _add_ticks(fields[child][_FIRST_TIME:_END_OF_TIMES])
            pending += children[child]
        return ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, IndexError, KeyError, OSError, ValueError):
        return None


def _stat_fields(path: Path) -> list[str]:
    """Return the fields after the process name; empty if the process has ended."""
    try:
        return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _add_ticks(texts: list[str]) -> int:
    return sum(map(int, texts))


def process_facts() -> dict[str, Any]:
    """Return the facts in the format of captures. Unknown values are missing or None."""
    facts: dict[str, Any] = {
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "peak_nbytes": _peak_host_nbytes(),
        "frameworks": {},
    }
    readers = (("torch", _torch_facts), ("tensorflow", _tensorflow_facts), ("jax", _jax_facts), ("cupy", _cupy_facts))
    for name, read_facts in readers:
        module = sys.modules.get(name)
        if module is None or not _can_query(name):
            continue
        with suppress(Exception):  # a half-imported framework, or an unsupported version
            facts["frameworks"][name] = read_facts(module)
    with suppress(Exception):
        facts["keras_backend"] = str(sys.modules["keras"].backend.backend())
    return facts


def _peak_host_nbytes() -> int | None:
    if sys.platform == "win32":
        return None
    unit_nbytes = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_nbytes


def _can_query(name: str) -> bool:
    """Whether the doctor may query a loaded framework; always True except for JAX.

    TensorFlow imports an installed JAX, even if the script does not use JAX. A query of the JAX devices would
    initialise all of them. So the script must have initialised them before.
    """
    if name != "jax":
        return True
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "backends_are_initialized", lambda: True)())


def _torch_facts(torch: Any) -> dict[str, Any]:
    has_gpu = bool(torch.cuda.is_available())
    facts = {"gpus": torch.cuda.device_count() if has_gpu else 0, "threads": torch.get_num_threads()}
    if has_gpu and torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info()
        facts |= {"free_nbytes": free, "total_nbytes": total, "peak_nbytes": torch.cuda.max_memory_allocated()}
        facts["tf32"] = bool(torch.backends.cuda.matmul.allow_tf32)
    return facts


def _tensorflow_facts(tf: Any) -> dict[str, Any]:
    gpus = tf.config.list_physical_devices("GPU")
    facts = {
        "gpus": len(gpus),
        "intra_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        "run_eagerly": bool(tf.config.functions_run_eagerly()),
    }
    if gpus and tensorflow_context() is not None:  # the query of the memory would initialise all GPUs
        facts["peak_nbytes"] = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        facts["total_nbytes"] = tensorflow_memory_limits().get("GPU:0")
    return facts


def _jax_facts(jax: Any) -> dict[str, Any]:
    devices = jax.local_devices()
    stats = devices[0].memory_stats() or {}
    return {
        "gpus": sum(device.platform == "gpu" for device in devices),
        "devices": len(devices),
        "peak_nbytes": stats.get("peak_bytes_in_use"),
        "total_nbytes": stats.get("bytes_limit"),
        "jit_disabled": bool(jax.config.jax_disable_jit),
    }


def _cupy_facts(cupy: Any) -> dict[str, Any]:
    free, total = cupy.cuda.runtime.memGetInfo()
    return {"gpus": cupy.cuda.runtime.getDeviceCount(), "free_nbytes": free, "total_nbytes": total}
