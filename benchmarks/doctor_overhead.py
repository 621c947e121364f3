"""Measure how much profiling by the doctor slows a loop, and compare with the doctor's own estimate.

    python benchmarks/doctor_overhead.py [--only torch] [--run-seconds 3.6] [--clock thread] [--json FILE]

Every installed framework runs in its own process; CuPy needs a GPU. The loops either start many tiny operations, or
take about 5 ms per step. Without a GPU they use one thread. Turns with all hooks and turns without hooks alternate.
The slowest 5 % of the steps of each turn do not count, because something else ran then. The fastest turns are
compared, because other load can only slow a turn down. The difference is the cost of a profiled step. Then a whole run
is measured with the doctor, and without it half before and half after. The doctor removes its hooks after enough
steps, so a longer run loses the same time. This time is shown as a share of one minute.
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
from forebay.doctor.capture.session import Session
from forebay.doctor.capture.step_detector import StepDetector
from forebay.doctor.diagnosis.diagnose import diagnose

FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy")
TURNS, TURN_SECONDS = 15, 0.1
COUNTED_SHARE = 0.95  # of the steps of a turn; the slowest steps do not count
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
ORDINARY_STEP_SECONDS = 0.005
WARM_UP_SECONDS = 0.3
MINUTE = 60.0
NEVER_STOP: dict[str, Any] = {"steps": 10**9, "seconds": 1e9, "wait_seconds": 1e9}  # all hooks stay installed

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}

Step = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class ProfiledLoop:
    """A loop to profile. `make` returns its step, and is called after the hooks are installed."""

    name: str
    operations: int  # per step
    make: Callable[[], Step]


@dataclass(frozen=True)
class LoopResult:
    """The measurements of one loop. The field names are keys of the JSON file."""

    loop: str
    operations: int
    bare_us: float  # per operation, without hooks
    hooked_us: float
    spread_us: float  # between the quartiles of turns without hooks
    watched_share: float  # by which a profiled step is longer
    minute_share: float  # time lost by a run, as a share of one minute
    said_share: float | None  # by which a profiled step is longer, as the doctor estimates

    @property
    def line(self) -> str:
        said = "none" if self.said_share is None else f"{self.said_share:8.1%}"
        return (
            f"{self.loop:34}{self.operations:4}{self.bare_us:10.2f}{self.hooked_us - self.bare_us:+8.2f}"
            f"{self.watched_share:9.1%}{said:>9}{self.minute_share:9.2%}"
        )


def main() -> None:
    arguments = parse_arguments()
    if arguments.rows:
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
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="use thread on a busy machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", help=argparse.SUPPRESS)  # result file of the process of a framework
    return parser.parse_args()


def frameworks(only: str | None) -> list[str]:
    names = [only] if only else FRAMEWORKS
    return [name for name in names if importlib.util.find_spec(name) is not None]


def measure_framework(framework: str, arguments: argparse.Namespace) -> list[LoopResult]:
    """Measure in a new process, because frameworks clash in one process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        options = ["--only", framework, "--run-seconds", str(arguments.run_seconds), "--clock", arguments.clock]
        command = [sys.executable, __file__, *options, "--rows", file]
        done = subprocess.run(command, env=ONE_THREAD | os.environ, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.stderr.write(f"{framework}: {done.stderr.strip().splitlines()[-1]}\n")
            return []
        return [LoopResult(**row) for row in json.loads(file.read_text())]


def report(found: dict[str, list[LoopResult]], arguments: argparse.Namespace) -> None:
    machine, versions = Machine.detect(), installed_versions()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}; {TURNS} turns of {TURN_SECONDS} s, medians")
    print(f"by the {arguments.clock} clock; whole runs of {arguments.run_seconds} s")
    print(f"\n{'loop':34}{'ops':>4}{'us per op':>10}{'cost':>8}{'profiled':>9}{'estimate':>9}{'minute':>9}")
    for framework, rows in found.items():
        for row in rows:
            print(f"{row.line}  {framework} {versions.get(framework, '')}")
    if arguments.json is not None:
        loops = {name: [asdict(row) for row in rows] for name, rows in found.items()}
        arguments.json.write_text(
            json.dumps({"machine": asdict(machine), "versions": versions, "loops": loops}, indent=1)
        )


def measure_loop(loop: ProfiledLoop, run_seconds: float, clock: Clock) -> LoopResult:
    bare, hooked = measure_turns(loop, clock)
    bare_seconds, hooked_seconds = min(bare), min(hooked)  # other load can only slow a turn down
    lost, said = measure_run(loop, max(200, int(run_seconds / bare_seconds)), clock)
    quartiles = statistics.quantiles(bare, n=4)
    return LoopResult(
        loop=loop.name,
        operations=loop.operations,
        bare_us=bare_seconds / loop.operations * 1e6,
        hooked_us=hooked_seconds / loop.operations * 1e6,
        spread_us=(quartiles[2] - quartiles[0]) / loop.operations * 1e6,
        watched_share=hooked_seconds / bare_seconds - 1,
        minute_share=lost / MINUTE,
        said_share=said,
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
            watched = loop.make()
            seconds_of(watched, max(10, count // 2))
            hooked.append(seconds_per_step(watched, count, clock))
        finally:
            session.stop()
    return bare, hooked


def steps_per_turn(step: Step) -> int:
    """Return how many steps fit into a turn."""
    count, until = 0, time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < until:
        step()
        count += 1
    started = time.perf_counter()
    seconds_of(step, max(1, count // 3))
    return max(10, int(TURN_SECONDS / ((time.perf_counter() - started) / max(1, count // 3))))


def measure_run(loop: ProfiledLoop, steps: int, clock: Clock) -> tuple[float, float | None]:
    """Return the seconds that profiling costs a run, and the doctor's estimate of the cost per step."""
    before = seconds_of(loop.make(), steps // 2, clock)
    session = Session()
    session.start()
    try:
        watched = seconds_of(loop.make(), steps, clock)
    finally:
        session.stop()
    after = seconds_of(loop.make(), steps - steps // 2, clock)
    return watched - before - after, diagnose(session.capture(loop.name)).view.profiling_overhead


def seconds_of(step: Step, count: int, clock: Clock = time.perf_counter) -> float:
    began = clock()
    for _ in range(count):
        step()
    return clock() - began


def seconds_per_step(step: Step, count: int, clock: Clock) -> float:
    """Return the mean seconds per step without the slowest steps."""
    found = []
    for _ in range(count):
        began = clock()
        step()
        found.append(clock() - began)
    return statistics.mean(sorted(found)[: max(1, int(count * COUNTED_SHARE))])


def find_size(cost: Callable[[int], Step]) -> int:
    """Return the size at which a step takes about as long as an ordinary step."""
    size = 64
    while size < 1 << 14:
        step = cost(size)
        seconds_of(step, 3)
        if seconds_of(step, 5) / 5 >= ORDINARY_STEP_SECONDS / 2:
            return size
        size *= 2
    return size


def torch_loops() -> list[ProfiledLoop]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def training(width: int, rows: int, layers: int = 1) -> Step:
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

    def chained() -> Step:
        x = torch.ones(8, device=device)

        def step() -> None:
            y = x
            for _ in range(10):
                y = y + x
            y.sum().item()

        return step

    size = find_size(lambda size: training(size, 256))
    return [
        ProfiledLoop("eager additions, item() each 10th", 12, chained),
        ProfiledLoop("tiny training step", 20, lambda: training(16, 8)),
        ProfiledLoop("training step, 16 small layers", 180, lambda: training(16, 8, layers=16)),
        ProfiledLoop("training step", 20, lambda: training(size, 256)),
    ]


def tensorflow_loops() -> list[ProfiledLoop]:
    import tensorflow as tf

    def chained() -> Step:
        x = tf.ones(8)

        def step() -> None:
            y = x
            for _ in range(10):
                y = y + x
            float(tf.reduce_sum(y))

        return step

    def compiled(size: int) -> Step:
        weights, batch = tf.Variable(tf.random.normal((size, size))), tf.ones((size, size))

        @tf.function
        def update(x: Any) -> Any:
            loss = tf.reduce_mean(tf.matmul(x, weights))
            weights.assign_sub(1e-6 * weights)
            return loss

        def step() -> None:
            update(batch).numpy()

        return step

    size = find_size(compiled)
    return [
        ProfiledLoop("eager additions, float() each 10th", 12, chained),
        ProfiledLoop("tiny tf.function", 1, lambda: compiled(8)),
        ProfiledLoop("tf.function", 1, lambda: compiled(size)),
    ]


def jax_loops() -> list[ProfiledLoop]:
    import jax
    import jax.numpy as jnp

    def chained() -> Step:
        x = jnp.ones(8)

        def step() -> None:
            y = x
            for _ in range(10):
                y = y + x
            y.block_until_ready()

        return step

    def compiled(size: int) -> Step:
        update = jax.jit(lambda weights: weights - 1e-6 * (weights @ weights))
        state = [update(jnp.ones((size, size)))]

        def step() -> None:
            state[0] = update(state[0])

        return step

    def read(size: int) -> Step:
        update, batch = jax.jit(lambda x: (x @ x).mean()), jnp.ones((size, size))
        return lambda: float(update(batch)) and None

    size = find_size(read)
    return [
        ProfiledLoop("eager additions", 10, chained),
        ProfiledLoop("tiny jit", 1, lambda: compiled(8)),
        ProfiledLoop("jit and float()", 1, lambda: read(size)),
    ]


def cupy_loops() -> list[ProfiledLoop]:
    import cupy

    def multiplied(size: int) -> Step:
        matrix = cupy.ones((size, size), cupy.float32)
        return lambda: (matrix @ matrix).sum().item()

    def chained() -> Step:
        x = cupy.ones(8)

        def step() -> None:
            y = x
            for _ in range(10):
                y = y + x
            y.sum().item()

        return step

    size = find_size(multiplied)
    return [
        ProfiledLoop("additions, item() each 10th", 12, chained),
        ProfiledLoop("product", 2, lambda: multiplied(size)),
    ]


LOOPS = {"torch": torch_loops, "tensorflow": tensorflow_loops, "jax": jax_loops, "cupy": cupy_loops}

if __name__ == "__main__":
    main()
