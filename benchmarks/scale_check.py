"""The simulator of `forebay scale` beside feeds that really run: predicted and measured steps, in one table.

    python benchmarks/scale_check.py [--turns 3] [--ray] [--only KIND] [--json FILE]

The training loop sleeps in place of a device. What the simulator is told is measured apart from what it predicts: the
map in a plain loop, the disk by plain reads, sleeping by sleeping, the trip to a worker by one configuration that is
marked so and not counted. So is what the trainer itself does for a batch on Ray, by a map that does nothing: however
many workers there are, no feed is faster. Every measured feed has a process of its own, with the cores it may use. A
turn, that is every configuration once, takes half a minute, and a whole one and more with --ray, where each waits for
a cluster to start.
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

from scale_feeds import ROW_NBYTES, UNEVEN, WAIT_SECONDS, disk_speed, row_seconds, write_rows

from forebay.measure.simulate.scenario import Data, Host, Maps, Remote, Scenario, Training
from forebay.measure.simulate.simulate import simulate

SIMULATED_STEPS = 3000  # more than are measured: chance evens out


@dataclass(frozen=True)
class Case:
    """A feed that is measured, and predicted."""

    name: str
    kind: str  # process, waiting, uneven, disk, ray, ray waiting or ray empty
    workers: int = 1  # of a node, on Ray
    batch_rows: int = 64
    loop_seconds: float = 0.0
    steps: int = 60  # more, and a worker process would be given several batches at a time
    host_bytes: str = "256MiB"
    nodes: int = 0
    calibrates: bool = False  # the trip to a worker is taken from it


def main() -> None:
    asked = parse_arguments()
    chosen = [case for case in cases(len(os.sched_getaffinity(0)), ray=asked.ray) if case.kind.startswith(asked.only)]
    turns: list[list[dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path)
        for _ in range(asked.turns):
            turns.append(turn(path, chosen))
            if asked.json:
                asked.json.write_text(json.dumps(turns, indent=1) + "\n")
    report(turns)


def cases(cores: int, *, ray: bool) -> Iterator[Case]:
    """Configurations that fit the cores; in every family, some are bound by the feed and some by the loop."""
    yield Case("process map", "process", calibrates=True)
    yield Case("process map, batch 160", "process", batch_rows=160)
    for workers in (workers for workers in (2, 4, 8) if workers <= cores):
        yield from (Case("process map", "process", workers, loop_seconds=loop) for loop in (0.0, 0.006, 0.016))
    for threads in (threads for threads in (1, 3, 7) if threads < cores):
        yield Case("waiting map", "waiting", threads, 256, calibrates=threads == 1)
        yield from (Case("waiting map", "waiting", threads, 256, loop) for loop in (0.003, 0.008))
    yield from (Case("uneven map", "uneven", 1, 256, WAIT_SECONDS, 400, budget) for budget in ("256MiB", "9MiB"))
    yield from (Case("cold disk", "disk", 1, 2048, loop, 120) for loop in (0.0, 0.002, 0.006))
    if ray:
        yield from ray_cases(max(1, cores // 4))


def ray_cases(workers: int) -> Iterator[Case]:
    """What the trainer does for a batch; on one node, what a trip costs; then two, and a loop that leaves them time."""
    yield Case("ray, nothing done, 2 nodes", "ray empty", workers, nodes=2, calibrates=True)
    for kind in ("ray", "ray waiting"):
        yield Case(f"{kind} map, 1 node", kind, workers, nodes=1, calibrates=True)
        for loop in (0.0, 0.016):
            yield Case(f"{kind} map, 2 nodes", kind, workers, loop_seconds=loop, nodes=2)


def turn(path: Path, chosen: list[Case]) -> list[dict[str, Any]]:
    """Every case once."""
    trips: dict[str, float] = {}
    return [side_by_side(case, path, trips) for case in chosen]


def side_by_side(case: Case, path: Path, trips: dict[str, float]) -> dict[str, Any]:
    """A case measured, and predicted from what was measured right before and after it."""
    before = row_seconds(), disk_speed(path)
    found = measured(case, path)
    row, disk = (statistics.mean(pair) for pair in zip(before, (row_seconds(), disk_speed(path)), strict=True))
    worked = {"process": row * case.batch_rows, "ray": row * case.batch_rows, "ray empty": 0.0}.get(
        case.kind, found["waited"]
    )
    if case.kind == "ray empty":
        trips["trainer"] = found["step"]
    elif case.calibrates:
        trips[case.kind] = max(0.0, found["step"] * found["workers"] - worked)
    trip = trips.get("waiting" if case.kind == "uneven" else case.kind, 0.0)
    made = scenario(case, found, worked + trip, disk, trips.get("trainer", 0.0))
    predicted = simulate(made, steps=SIMULATED_STEPS).step_seconds
    told = f"{case.name}, loop {case.loop_seconds * 1e3:.0f} ms: measured {found['step'] * 1e3:.2f} ms"
    print(f"{told}, predicted {predicted * 1e3:.2f}", file=sys.stderr, flush=True)
    return asdict(case) | found | {"predicted": predicted}


def measured(case: Case, path: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("scale_feeds.py")
    child = [sys.executable, str(script), json.dumps(asdict(case) | {"path": str(path)})]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case.name} could not be measured:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def scenario(
    case: Case, found: dict[str, Any], batch_seconds: float, disk_bytes_per_second: float, trainer_seconds: float
) -> Scenario:
    """The case as the simulator is told it; slots and threads are the plan's."""
    training = Training(case.batch_rows, found["slept"], prefetch=found["slots"])
    data = Data(rows=case.batch_rows * case.steps, row_nbytes=ROW_NBYTES)
    if case.kind == "disk":
        return Scenario(replace(data, source="disk"), training, host=Host(disk_bytes_per_second=disk_bytes_per_second))
    jitter = UNEVEN if case.kind == "uneven" else 0.0
    maps = Maps("remote" if case.nodes else "host", seconds_per_batch=batch_seconds, jitter=jitter)
    remote = Remote(max(1, case.nodes), case.workers, in_flight=found["threads"], seconds_per_batch=trainer_seconds)
    return Scenario(data, training, maps, Host(workers=found["workers"]), remote=remote)


def report(turns: list[list[dict[str, Any]]]) -> None:
    """The quickest of the turns, measured and predicted: whatever else runs here can only slow them."""
    print("| feed | loop ms | workers | slots | measured ms | predicted ms | predicted / measured |")
    print("|---|---|---|---|---|---|---|")
    errors = []
    for runs in zip(*turns, strict=True):
        case, (step, predicted) = runs[0], (min(run[name] for run in runs) for name in ("step", "predicted"))
        if not case["calibrates"]:
            errors.append(abs(predicted / step - 1))
        shown = [case["name"], f"{case['loop_seconds'] * 1e3:.0f}", case["workers"], case["slots"]]
        shown += [f"{step * 1e3:.2f}", f"{predicted * 1e3:.2f}"]
        shown.append("calibrated on it" if case["calibrates"] else f"{predicted / step:.2f}")
        print(f"| {' | '.join(map(str, shown))} |")
    print(f"\nmedian error {statistics.median(errors):.1%}, worst {max(errors):.1%}, of {len(errors)} predictions")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="also on nodes of a local Ray cluster")
    parser.add_argument("--only", default="", metavar="KIND", help="process, waiting, uneven, disk, or ray")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every turn to a file as it ends")
    return parser.parse_args()


if __name__ == "__main__":
    main()
