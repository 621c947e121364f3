"""The simulator of `forebay scale` beside what was measured on an H200: streamed images, and a step fed with them.

    python benchmarks/scale_h200.py

It is told the link's peak, measured in the same run as the images, and the step on a batch that stays on the GPU.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forebay.measure.simulate.scenario import Data, Host, Scenario, Training
from forebay.measure.simulate.simulate import simulate

RESULTS = Path(__file__).with_name("results") / "h200.json"
ROW_NBYTES, BATCH_ROWS = 224 * 224 * 3, 256


def main() -> None:
    cases = {case["case"]["name"]: case["rows"] for case in json.loads(RESULTS.read_text())["cases"]}
    streamed = {row["label"]: medians(row) for row in cases["gpu-images"]}
    peak = streamed["page-locked DMA peak"]["speed"] * 1e9
    print("| what | measured ms | predicted ms | predicted / measured |\n|---|---|---|---|")
    for name, measured, predicted in [*streaming(streamed, peak), *training(cases["gpu-step"], peak)]:
        print(f"| {name} | {measured * 1e3:.3f} | {predicted * 1e3:.3f} | {predicted / measured:.2f} |")


def streaming(rows: dict[str, dict[str, float]], peak: float) -> Iterator[tuple[str, float, float]]:
    """A batch, with nothing to compute."""
    for label, row in rows.items():
        if label.startswith("forebay"):
            yield f"a batch, {label}", BATCH_ROWS * ROW_NBYTES / (row["speed"] * 1e9), step_seconds(0.0, peak)


def training(rows: list[dict[str, Any]], peak: float) -> Iterator[tuple[str, float, float]]:
    """A step that takes little longer than the copy of its batch."""
    for row in rows:
        found = medians(row)
        yield f"a step, {row['label']}", found["fed"] / 1e3, step_seconds(found["alone"] / 1e3, peak)


def step_seconds(compute_seconds: float, link_bytes_per_second: float) -> float:
    data = Data(rows=28_672, row_nbytes=ROW_NBYTES)
    host = Host(link_bytes_per_second=link_bytes_per_second)
    return simulate(Scenario(data, Training(BATCH_ROWS, compute_seconds), host=host)).step_seconds


def medians(row: dict[str, Any]) -> dict[str, float]:
    return {name: column["median"] for name, column in row["columns"].items()}


if __name__ == "__main__":
    main()
