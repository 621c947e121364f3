"""Measure how much a feed slows the steps of a trainer on a GPU.

    python benchmarks/trainer_overhead.py [--trainer lightning --trainer keras] [--rounds 5] [--steps 200]

The baseline is the same trainer with a loader that repeats one batch on the GPU. This loader loads nothing. Runs with
the different loaders alternate. Each trainer runs in a process of its own, because PyTorch and TensorFlow conflict. The
script leaves out trainers that are not installed.
"""

import argparse
import importlib
import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

# trainer: the module with its steps, and the packages that it needs
MODULES = {
    "lightning": ("trainers_of_torch", ("torch", "lightning")),
    "transformers": ("trainers_of_torch", ("torch", "transformers")),
    "keras": ("trainers_of_keras", ("keras", "tensorflow")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", action="append", choices=tuple(MODULES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    work = parser.parse_args()
    names = work.trainer or list(MODULES)
    if len(names) == 1:
        run(names[0], work)
        return
    for name in names:
        missing = [package for package in MODULES[name][1] if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name:13} left out: {missing[0]} is not installed", flush=True)
            continue
        options = ["--rounds", str(work.rounds), "--steps", str(work.steps), "--device", work.device]
        subprocess.run([sys.executable, __file__, "--trainer", name, *options], check=True)


def run(name: str, work: argparse.Namespace) -> None:
    module = importlib.import_module(MODULES[name][0])
    loaders = module.make_loaders(work.steps, work.device)
    seconds = measure(module.TRAINERS[name], loaders, work.rounds)
    alone = statistics.median(seconds["one batch"])
    for label, values in seconds.items():
        ratios = [value / base for value, base in zip(values, seconds["one batch"], strict=True)]
        spread = (max(values) - min(values)) / 2 / statistics.median(values)
        print(
            f"{name:13} {label:17} {statistics.median(values) * 1e3:.3f} ms per step +- {spread:.0%}, "
            f"{statistics.median(ratios):.3f} x of one batch ({alone * 1e3:.3f} ms)",
            flush=True,
        )


def measure(run: Callable[[Any], list[float]], loaders: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the mean seconds per step of each loader and round, without the first quarter of the steps.

    A first round is the warm-up and does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds + 1):
        for name, loader in loaders.items():
            steps = run(loader)
            if number:
                seconds[name].append(statistics.mean(steps[len(steps) // 4 :]))
    return seconds


if __name__ == "__main__":
    main()
