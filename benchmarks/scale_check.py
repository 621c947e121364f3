"""Compare the step times that `forebay scale` predicts with those of real feeds.

    python benchmarks/scale_check.py [--turns 3] [--ray] [--only KIND] [--json FILE]

The training loop sleeps instead of using a device. Three inputs of the simulation are measured without a feed: the time
of the map, the speed of the disk, and the time of the sleep. Two inputs come from calibration cases: the time to send a
batch to a worker and back, and with Ray the time that the training process needs per batch, which is the step time of a
map that returns its input. The table marks these cases, and they do not count as predictions.

Every feed runs in its own process; feeds with local maps use a limited number of cores. A turn runs every case once. It
takes half a minute, or more than a minute with --ray, because each Ray case starts a cluster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scale_feeds import ROW_NBYTES, WAIT_JITTER, WAIT_SECONDS, measure_disk_speed, measure_row_seconds, write_rows

from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Training
from forebay.measure.simulate.simulate import simulate

SIMULATED_STEPS = 3000  # more than the measured steps, so that random delays average out


@dataclass(frozen=True)
class FeedCase:
    """A feed to measure and to predict."""

    name: str
    kind: str  # process, waiting, uneven, disk, ray, ray waiting or ray empty
    workers: int = 1  # per node with Ray
    batch_rows: int = 64
    loop_seconds: float = 0.0  # time that the training loop sleeps per step
    steps: int = 60  # with more steps, the feed of a process map would send several batches to a worker at once
    host_bytes: str = "256MiB"  # memory budget of the feed
    nodes: int = 0  # Ray nodes; 0 means without Ray
    calibrates: bool = False  # whether an input of the simulation comes from this case


def main() -> None:
    arguments = parse_arguments()
    all_cases = make_cases(len(os.sched_getaffinity(0)), ray=arguments.ray)
    cases = [case for case in all_cases if case.kind.startswith(arguments.only)]
    turns: list[list[dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path)
        for _ in range(arguments.turns):
            turns.append(run_turn(path, cases))
            if arguments.json:
                arguments.json.write_text(json.dumps(turns, indent=1) + "\n")
    report(turns)


def make_cases(cores: int, *, ray: bool) -> Iterator[FeedCase]:
    """Yield cases for this number of cores.

    Most kinds have cases with a slow feed and cases with a slow loop.
    """
    yield FeedCase("process map", "process", calibrates=True)
    yield FeedCase("process map, batch 160", "process", batch_rows=160)
    for workers in (workers for workers in (2, 4, 8) if workers <= cores):
        yield from (FeedCase("process map", "process", workers, loop_seconds=loop) for loop in (0.0, 0.006, 0.016))
    for threads in (threads for threads in (1, 3, 7) if threads < cores):
        yield FeedCase("waiting map", "waiting", threads, 256, calibrates=threads == 1)
        yield from (FeedCase("waiting map", "waiting", threads, 256, loop) for loop in (0.003, 0.008))
    yield from (FeedCase("uneven map", "uneven", 1, 256, WAIT_SECONDS, 400, budget) for budget in ("256MiB", "9MiB"))
    yield from (FeedCase("cold disk", "disk", 1, 2048, loop, 120) for loop in (0.0, 0.002, 0.006))
    if ray:
        yield from make_ray_cases(max(1, cores // 4))


def make_ray_cases(workers: int) -> Iterator[FeedCase]:
    """Yield calibration cases on Ray, and cases with a fast and a slow loop."""
    yield FeedCase("ray, empty map, 2 nodes", "ray empty", workers, nodes=2, calibrates=True)
    for kind in ("ray", "ray waiting"):
        yield FeedCase(f"{kind} map, 1 node", kind, workers, nodes=1, calibrates=True)
        for loop in (0.0, 0.016):
            yield FeedCase(f"{kind} map, 2 nodes", kind, workers, loop_seconds=loop, nodes=2)


def run_turn(path: Path, cases: list[FeedCase]) -> list[dict[str, Any]]:
    """Run every case once."""
    transfer_seconds: dict[str, float] = {}  # kind -> time to send a batch to a worker and back, from calibration cases
    return [compare(case, path, transfer_seconds) for case in cases]


def compare(case: FeedCase, path: Path, transfer_seconds: dict[str, float]) -> dict[str, Any]:
    """Measure a case, and predict its step time from inputs measured directly before and after."""
    before = measure_row_seconds(), measure_disk_speed(path)
    measured = measure_feed(case, path)
    after = measure_row_seconds(), measure_disk_speed(path)
    row_seconds, disk_bytes_per_second = (statistics.mean(pair) for pair in zip(before, after, strict=True))
    loop_seconds = row_seconds * case.batch_rows  # of the map that runs Python loops
    map_seconds = {"process": loop_seconds, "ray": loop_seconds, "ray empty": 0.0}.get(case.kind, measured["waited"])
    if case.kind == "ray empty":
        transfer_seconds["trainer"] = measured["step"]
    elif case.calibrates:
        transfer_seconds[case.kind] = max(0.0, measured["step"] * measured["workers"] - map_seconds)
    transfer = transfer_seconds.get("waiting" if case.kind == "uneven" else case.kind, 0.0)
    trainer_seconds = transfer_seconds.get("trainer", 0.0)
    scenario = make_scenario(case, measured, map_seconds + transfer, disk_bytes_per_second, trainer_seconds)
    predicted = simulate(scenario, steps=SIMULATED_STEPS).step_seconds
    message = f"{case.name}, loop {case.loop_seconds * 1e3:.0f} ms: measured {measured['step'] * 1e3:.2f} ms"
    print(f"{message}, predicted {predicted * 1e3:.2f}", file=sys.stderr, flush=True)
    return asdict(case) | measured | {"predicted": predicted}


def measure_feed(case: FeedCase, path: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("scale_feeds.py")
    command = [sys.executable, str(script), json.dumps(asdict(case) | {"path": str(path)})]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode:
        raise SystemExit(f"{case.name} could not be measured:\n{completed.stderr}")
    measured: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return measured


def make_scenario(
    case: FeedCase, measured: dict[str, Any], batch_seconds: float, disk_bytes_per_second: float, trainer_seconds: float
) -> Scenario:
    """Return the scenario of a case, with the slots and threads of its plan."""
    training = Training(case.batch_rows, measured["slept"], prefetch=measured["slots"])
    data = Data(rows=case.batch_rows * case.steps, row_nbytes=ROW_NBYTES)
    if case.kind == "disk":
        return Scenario(replace(data, source="disk"), training, host=Host(disk_bytes_per_second=disk_bytes_per_second))
    jitter = WAIT_JITTER if case.kind == "uneven" else 0.0
    maps = Maps("remote" if case.nodes else "host", seconds_per_batch=batch_seconds, jitter=jitter)
    remote = Remote(max(1, case.nodes), case.workers, in_flight=measured["threads"], seconds_per_batch=trainer_seconds)
    return Scenario(data, training, maps, Host(workers=measured["workers"]), remote=remote)


def report(turns: list[list[dict[str, Any]]]) -> None:
    """Print the smallest times of each case, because other load can only slow a turn."""
    print("| feed | loop ms | workers | slots | measured ms | predicted ms | predicted / measured |")
    print("|---|---|---|---|---|---|---|")
    errors = []
    for runs in zip(*turns, strict=True):
        case, (step, predicted) = runs[0], (min(run[name] for run in runs) for name in ("step", "predicted"))
        if not case["calibrates"]:
            errors.append(abs(predicted / step - 1))
        cells = [case["name"], f"{case['loop_seconds'] * 1e3:.0f}", case["workers"], case["slots"]]
        cells += [f"{step * 1e3:.2f}", f"{predicted * 1e3:.2f}"]
        cells.append("used for calibration" if case["calibrates"] else f"{predicted / step:.2f}")
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"\nmedian error {statistics.median(errors):.1%}, worst {max(errors):.1%}, of {len(errors)} predictions")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="runs of every case; the fastest counts")
    parser.add_argument("--ray", action="store_true", help="also run cases on a local Ray cluster")
    parser.add_argument("--only", default="", metavar="KIND", help="run only process, waiting, uneven, disk or ray")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all turns to FILE after each turn")
    return parser.parse_args()


if __name__ == "__main__":
    main()
