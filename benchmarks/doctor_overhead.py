"""What the doctor costs the loop it watches: by a stopwatch, and beside that by its own account.

    python benchmarks/doctor_overhead.py [--only torch] [--run-seconds 3.6] [--clock thread] [--json FILE]

Every framework that is installed has a process of its own, CuPy only where there is a GPU. Loops that start many tiny
operations are watched, and ordinary ones of some 5 ms a step, on one thread where there is no GPU. Turns with all hooks
in and turns without them alternate; of each turn the slowest twentieth of steps is left out, where something else ran,
and the shortest turns are compared: whatever else the machine does only makes them longer. That is what a watched step
costs. Then a whole run is made twice, half of the bare one before the watched one and half after it. Hooks go out once
enough was seen, so what a run loses is the same for a longer one: it is told as a share of a minute.
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
KEPT = 0.95  # of a turn's steps
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
ORDINARY_SECONDS = 0.005  # of a step
WARM_UP_SECONDS = 0.3
MINUTE = 60.0
FOR_EVER: dict[str, Any] = {"steps": 10**9, "seconds": 1e9, "patience_seconds": 1e9}  # all hooks stay in

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}

Step = Callable[[], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Loop:
    """A loop to be watched: `make` gives its step, and is called when the hooks are in."""

    name: str
    operations: int  # of a step
    make: Callable[[], Step]


@dataclass(frozen=True)
class Row:
    """What was measured of one loop."""

    loop: str
    operations: int
    bare_us: float  # of an operation
    hooked_us: float
    spread_us: float  # between the quartiles of bare turns
    watched_share: float  # by which a watched step is longer
    minute_share: float  # of a run of a minute
    said_share: float | None  # by which a watched step is longer, as the doctor says

    @property
    def line(self) -> str:
        said = "not said" if self.said_share is None else f"{self.said_share:8.1%}"
        return (
            f"{self.loop:34}{self.operations:4}{self.bare_us:10.2f}{self.hooked_us - self.bare_us:+8.2f}"
            f"{self.watched_share:9.1%}{said:>9}{self.minute_share:9.2%}"
        )


def main() -> None:
    asked = parse_arguments()
    if asked.rows:
        rows = [measured(loop, asked.run_seconds, CLOCKS[asked.clock]) for loop in LOOPS[asked.only]()]
        Path(asked.rows).write_text(json.dumps([asdict(row) for row in rows]))
        return
    report({name: rows_of(name, asked) for name in frameworks(asked.only)}, asked)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FRAMEWORKS)
    parser.add_argument("--run-seconds", type=float, default=3.6, help="of a whole run, bare (default: 3.6)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="thread: where others keep the machine busy")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", help=argparse.SUPPRESS)  # where the process of a framework writes what it measured
    return parser.parse_args()


def frameworks(only: str | None) -> list[str]:
    names = [only] if only else FRAMEWORKS
    return [name for name in names if importlib.util.find_spec(name) is not None]


def rows_of(framework: str, asked: argparse.Namespace) -> list[Row]:
    """Measured in a process of its own: frameworks clash in one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        options = ["--only", framework, "--run-seconds", str(asked.run_seconds), "--clock", asked.clock]
        command = [sys.executable, __file__, *options, "--rows", file]
        done = subprocess.run(command, env=ONE_THREAD | os.environ, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.stderr.write(f"{framework}: {done.stderr.strip().splitlines()[-1]}\n")
            return []
        return [Row(**row) for row in json.loads(file.read_text())]


def report(found: dict[str, list[Row]], asked: argparse.Namespace) -> None:
    machine, versions = Machine.detect(), installed_versions()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}; {TURNS} turns of {TURN_SECONDS} s, medians")
    print(f"by the {asked.clock} clock; whole runs of {asked.run_seconds} s")
    print(f"\n{'loop':34}{'ops':>4}{'us an op':>10}{'cost':>8}{'watched':>9}{'it says':>9}{'a minute':>9}")
    for framework, rows in found.items():
        for row in rows:
            print(f"{row.line}  {framework} {versions.get(framework, '')}")
    if asked.json is not None:
        told = {name: [asdict(row) for row in rows] for name, rows in found.items()}
        asked.json.write_text(json.dumps({"machine": asdict(machine), "versions": versions, "loops": told}, indent=1))


def measured(loop: Loop, run_seconds: float, clock: Clock) -> Row:
    bare, hooked = alternating(loop, clock)
    each, watched = min(bare), min(hooked)  # whatever else the machine does makes a turn longer, never shorter
    lost, said = whole_run(loop, max(200, int(run_seconds / each)), clock)
    quartiles = statistics.quantiles(bare, n=4)
    return Row(
        loop=loop.name,
        operations=loop.operations,
        bare_us=each / loop.operations * 1e6,
        hooked_us=watched / loop.operations * 1e6,
        spread_us=(quartiles[2] - quartiles[0]) / loop.operations * 1e6,
        watched_share=watched / each - 1,
        minute_share=lost / MINUTE,
        said_share=said,
    )


def alternating(loop: Loop, clock: Clock) -> tuple[list[float], list[float]]:
    """Seconds of a step, turn by turn, without hooks and with them."""
    bare, hooked = [], []
    step = loop.make()
    count = calibrated(step)
    for _ in range(TURNS):
        bare.append(kept_seconds(step, count, clock))
        session = Session(StepDetector(**FOR_EVER))
        session.start()
        try:
            watched = loop.make()
            seconds_of(watched, max(10, count // 2))
            hooked.append(kept_seconds(watched, count, clock))
        finally:
            session.stop()
    return bare, hooked


def calibrated(step: Step) -> int:
    """How many steps a turn has."""
    count, until = 0, time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < until:
        step()
        count += 1
    started = time.perf_counter()
    seconds_of(step, max(1, count // 3))
    return max(10, int(TURN_SECONDS / ((time.perf_counter() - started) / max(1, count // 3))))


def whole_run(loop: Loop, steps: int, clock: Clock) -> tuple[float, float | None]:
    """Seconds that a run loses by being watched, and by how much a watched step is longer as the doctor says."""
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


def kept_seconds(step: Step, count: int, clock: Clock) -> float:
    """Of a step, without the slowest."""
    found = []
    for _ in range(count):
        began = clock()
        step()
        found.append(clock() - began)
    return statistics.mean(sorted(found)[: max(1, int(count * KEPT))])


def sized(cost: Callable[[int], Step]) -> int:
    """The size at which a step takes about as long as an ordinary one."""
    size = 64
    while size < 1 << 14:
        step = cost(size)
        seconds_of(step, 3)
        if seconds_of(step, 5) / 5 >= ORDINARY_SECONDS / 2:
            return size
        size *= 2
    return size


def torch_loops() -> list[Loop]:
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

    size = sized(lambda size: training(size, 256))
    return [
        Loop("eager additions, item() each 10th", 12, chained),
        Loop("tiny training step", 20, lambda: training(16, 8)),
        Loop("training step, 16 small layers", 180, lambda: training(16, 8, layers=16)),
        Loop("training step", 20, lambda: training(size, 256)),
    ]


def tensorflow_loops() -> list[Loop]:
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

    size = sized(compiled)
    return [
        Loop("eager additions, float() each 10th", 12, chained),
        Loop("tiny tf.function", 1, lambda: compiled(8)),
        Loop("tf.function", 1, lambda: compiled(size)),
    ]


def jax_loops() -> list[Loop]:
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

    size = sized(read)
    return [
        Loop("eager additions", 10, chained),
        Loop("tiny jit", 1, lambda: compiled(8)),
        Loop("jit and float()", 1, lambda: read(size)),
    ]


def cupy_loops() -> list[Loop]:
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

    size = sized(multiplied)
    return [Loop("additions, item() each 10th", 12, chained), Loop("product", 2, lambda: multiplied(size))]


LOOPS = {"torch": torch_loops, "tensorflow": tensorflow_loops, "jax": jax_loops, "cupy": cupy_loops}

if __name__ == "__main__":
    main()
