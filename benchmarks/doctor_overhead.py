"""Measure how much the doctor slows a training loop, and compare this with its own estimate.

    python benchmarks/doctor_overhead.py [--only torch] [--run-seconds 3.6] [--clock thread] [--json FILE]

Every installed framework runs in its own process; CuPy needs a GPU. Some loops start many tiny operations, others take
a few milliseconds per step. On the CPU, a loop uses one thread, unless the environment sets another number.

The cost of a profiled step comes from short turns. Turns with all hooks and turns without hooks alternate. The slowest
5 % of the steps of a turn do not count. The fastest turns of both kinds count, because other load can only slow a turn.

The cost of a run is the time of a whole run with the doctor, minus that of a run without it (one half of this run comes
before, one half after). The doctor removes its hooks after enough steps, so a longer run loses no more time.

The columns: `us per op` without hooks; `cost`, the microseconds per operation that hooks add; `profiled`, by how much a
profiled step is longer; `estimate`, the same as the doctor reports it; `minute`, the cost of a run as a share of 60 s.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forebay.core.machine import Machine, installed_versions
from forebay.core.provenance import provenance
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose

FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy")
TURNS = 15  # of each kind
TURN_SECONDS = 0.1  # intended duration of a turn
COUNTED_SHARE = 0.95  # of the steps of a turn, from the fastest
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
MIN_LARGE_STEP_SECONDS = 0.0025  # of the loops with large operations
WARM_UP_SECONDS = 0.3
NEVER_STOP: dict[str, Any] = {"steps": 10**9, "seconds": 1e9, "wait_seconds": 1e9}  # the hooks stay installed

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}

Step = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class ProfiledLoop:
    """A loop to profile. `make` returns its step, after the hooks are installed."""

    name: str
    operations: int  # per step
    make: Callable[[], Step]


@dataclass(frozen=True)
class LoopResult:
    """The measurements of one loop. The field names are keys of the JSON file."""

    loop: str  # name of the loop
    operations: int  # per step
    bare_us: float  # microseconds per operation without hooks
    hooked_us: float  # microseconds per operation with hooks
    spread_us: float  # interquartile range of `bare_us` over the turns
    watched_share: float  # additional time of a profiled step, as a share of a step without hooks
    minute_share: float  # additional time of a run with the doctor, as a share of one minute
    said_share: float | None  # the doctor's estimate of `watched_share`

    @property
    def line(self) -> str:
        """Return the result as a row of the printed table."""
        estimate = "none" if self.said_share is None else f"{self.said_share:8.1%}"
        return (
            f"{self.loop:34}{self.operations:4}{self.bare_us:10.2f}{self.hooked_us - self.bare_us:+8.2f}"
            f"{self.watched_share:9.1%}{estimate:>9}{self.minute_share:9.2%}"
        )


def main() -> None:
    arguments = parse_arguments()
    if arguments.rows:  # this process measures one framework
        rows = [measure_loop(loop, arguments.run_seconds, CLOCKS[arguments.clock]) for loop in LOOPS[arguments.only]()]
        Path(arguments.rows).write_text(json.dumps([asdict(row) for row in rows]))
        return
    report({name: measure_framework(name, arguments) for name in frameworks(arguments.only)}, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FRAMEWORKS)
    parser.add_argument(
        "--run-seconds", type=float, default=3.6, help="duration of a whole run without hooks (default: 3.6)"
    )
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="use `thread` on a busy machine")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rows", help=argparse.SUPPRESS)  # file to which the process of a framework writes its results
    return parser.parse_args()


def frameworks(only: str | None) -> list[str]:
    """Return the installed frameworks."""
    names = [only] if only else FRAMEWORKS
    return [name for name in names if importlib.util.find_spec(name) is not None]


def measure_framework(framework: str, arguments: argparse.Namespace) -> list[LoopResult]:
    """Measure in a new process, because frameworks clash in one process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        options = ["--only", framework, "--run-seconds", str(arguments.run_seconds), "--clock", arguments.clock]
        command = [sys.executable, __file__, *options, "--rows", file]
        completed = subprocess.run(command, env=ONE_THREAD | os.environ, stderr=subprocess.PIPE, text=True)
        if completed.returncode:
            sys.stderr.write(f"{framework}: {completed.stderr.strip().splitlines()[-1]}\n")
            return []
        return [LoopResult(**row) for row in json.loads(file.read_text())]


def report(results: dict[str, list[LoopResult]], arguments: argparse.Namespace) -> None:
    """Print the results per framework as a table, and write the JSON file."""
    machine, versions = Machine.detect(), installed_versions()
    print(
        f"{machine.cpu}, {machine.cores} cores, Python {machine.python}; fastest of {TURNS} turns of {TURN_SECONDS} s"
    )
    print(f"by the {arguments.clock} clock; whole runs of {arguments.run_seconds} s")
    print(f"\n{'loop':34}{'ops':>4}{'us per op':>10}{'cost':>8}{'profiled':>9}{'estimate':>9}{'minute':>9}")
    for framework, rows in results.items():
        for row in rows:
            print(f"{row.line}  {framework} {versions.get(framework, '')}")
    if arguments.json is not None:
        loops = {name: [asdict(row) for row in rows] for name, rows in results.items()}
        arguments.json.write_text(
            json.dumps({**provenance(), "machine": asdict(machine), "versions": versions, "loops": loops}, indent=1)
        )


def measure_loop(loop: ProfiledLoop, run_seconds: float, clock: Clock) -> LoopResult:
    bare, hooked = measure_turns(loop, clock)
    bare_seconds, hooked_seconds = min(bare), min(hooked)  # other load can only slow a turn
    lost_seconds, estimate = measure_run(loop, max(200, int(run_seconds / bare_seconds)), clock)
    quartiles = statistics.quantiles(bare, n=4)
    return LoopResult(
        loop=loop.name,
        operations=loop.operations,
        bare_us=bare_seconds / loop.operations * 1e6,
        hooked_us=hooked_seconds / loop.operations * 1e6,
        spread_us=(quartiles[2] - quartiles[0]) / loop.operations * 1e6,
        watched_share=hooked_seconds / bare_seconds - 1,
        minute_share=lost_seconds / 60,
        said_share=estimate,
    )


def measure_turns(loop: ProfiledLoop, clock: Clock) -> tuple[list[float], list[float]]:
    """Return seconds per step of each turn, without hooks and with hooks."""
    bare, hooked = [], []
    step = loop.make()
    count = steps_per_turn(step)
    for _ in range(TURNS):
        bare.append(seconds_per_step(step, count, clock))
        session = Session(StepDetector(**NEVER_STOP))
        session.start()
        try:
            profiled_step = loop.make()
            total_seconds(profiled_step, max(10, count // 2))  # warm-up
            hooked.append(seconds_per_step(profiled_step, count, clock))
        finally:
            session.stop()
    return bare, hooked


def steps_per_turn(step: Step) -> int:
    """Warm up, and return how many steps fit into a turn."""
    count, deadline = 0, time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < deadline:
        step()
        count += 1
    measured_steps = max(1, count // 3)
    return max(10, int(TURN_SECONDS / (total_seconds(step, measured_steps) / measured_steps)))


def measure_run(loop: ProfiledLoop, steps: int, clock: Clock) -> tuple[float, float | None]:
    """Return the seconds that profiling adds to a run, and the estimate for `said_share`."""
    before = total_seconds(loop.make(), steps // 2, clock)
    session = Session()
    session.start()
    try:
        profiled = total_seconds(loop.make(), steps, clock)
    finally:
        session.stop()
    after = total_seconds(loop.make(), steps - steps // 2, clock)
    return profiled - before - after, diagnose(session.capture(loop.name)).view.profiling_overhead


def total_seconds(step: Step, count: int, clock: Clock = time.perf_counter) -> float:
    """Run the step `count` times, and return the time of all runs together."""
    start = clock()
    for _ in range(count):
        step()
    return clock() - start


def seconds_per_step(step: Step, count: int, clock: Clock) -> float:
    """Return the mean seconds per step without the slowest steps."""
    seconds = []
    for _ in range(count):
        start = clock()
        step()
        seconds.append(clock() - start)
    return statistics.mean(sorted(seconds)[: max(1, int(count * COUNTED_SHARE))])


def find_size(make_step: Callable[[int], Step]) -> int:
    """Return the smallest power of two for a step of `MIN_LARGE_STEP_SECONDS`; at most 16384."""
    size = 64
    while size < 1 << 14:
        step = make_step(size)
        total_seconds(step, 3)  # warm-up
        if total_seconds(step, 5) / 5 >= MIN_LARGE_STEP_SECONDS:
            return size
        size *= 2
    return size


def add_ten_times(array: Any, finish: Callable[[Any], object]) -> Step:
    """Return a step that adds an array ten times and calls `finish` with the sum."""

    def step() -> None:
        total = array
        for _ in range(10):
            total = total + array
        finish(total)

    return step


def torch_loops() -> list[ProfiledLoop]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def make_training(width: int, rows: int, layers: int = 1) -> Step:
        hidden = [layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        model = torch.nn.Sequential(*hidden, torch.nn.Linear(width, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        batch = torch.randn(rows, width, device=device)

        def step() -> None:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()

        return step

    def make_additions() -> Step:
        return add_ten_times(torch.ones(8, device=device), lambda total: total.sum().item())

    size = find_size(lambda size: make_training(size, 256))
    return [
        ProfiledLoop("eager additions, item() each 10th", 12, make_additions),
        ProfiledLoop("tiny training step", 20, lambda: make_training(16, 8)),
        ProfiledLoop("training step, 16 small layers", 180, lambda: make_training(16, 8, layers=16)),
        ProfiledLoop("training step", 20, lambda: make_training(size, 256)),
    ]


def tensorflow_loops() -> list[ProfiledLoop]:
    import tensorflow as tf

    def make_additions() -> Step:
        return add_ten_times(tf.ones(8), lambda total: float(tf.reduce_sum(total)))

    def make_function(size: int) -> Step:
        weights, batch = tf.Variable(tf.random.normal((size, size))), tf.ones((size, size))

        @tf.function
        def update(inputs: Any) -> Any:
            loss = tf.reduce_mean(tf.matmul(inputs, weights))
            weights.assign_sub(1e-6 * weights)
            return loss

        def step() -> None:
            update(batch).numpy()

        return step

    size = find_size(make_function)
    return [
        ProfiledLoop("eager additions, float() each 10th", 12, make_additions),
        ProfiledLoop("tiny tf.function", 1, lambda: make_function(8)),
        ProfiledLoop("tf.function", 1, lambda: make_function(size)),
    ]


def jax_loops() -> list[ProfiledLoop]:
    import jax
    import jax.numpy as jnp

    def make_additions() -> Step:
        return add_ten_times(jnp.ones(8), lambda total: total.block_until_ready())

    def make_update(size: int) -> Step:
        update = jax.jit(lambda weights: weights - 1e-6 * (weights @ weights))
        state = [update(jnp.ones((size, size)))]

        def step() -> None:
            state[0] = update(state[0])

        return step

    def make_update_and_read(size: int) -> Step:
        update, batch = jax.jit(lambda inputs: (inputs @ inputs).mean()), jnp.ones((size, size))
        return lambda: float(update(batch)) and None

    size = find_size(make_update_and_read)
    return [
        ProfiledLoop("eager additions", 10, make_additions),
        ProfiledLoop("tiny jit", 1, lambda: make_update(8)),
        ProfiledLoop("jit and float()", 1, lambda: make_update_and_read(size)),
    ]


def cupy_loops() -> list[ProfiledLoop]:
    import cupy

    def make_product(size: int) -> Step:
        matrix = cupy.ones((size, size), cupy.float32)
        return lambda: (matrix @ matrix).sum().item()

    def make_additions() -> Step:
        return add_ten_times(cupy.ones(8), lambda total: total.sum().item())

    size = find_size(make_product)
    return [
        ProfiledLoop("additions, item() each 10th", 12, make_additions),
        ProfiledLoop("product", 2, lambda: make_product(size)),
    ]


LOOPS = {"torch": torch_loops, "tensorflow": tensorflow_loops, "jax": jax_loops, "cupy": cupy_loops}

if __name__ == "__main__":
    main()
