"""Compare the simulation of `forebay scale` with the results of an H200.

    python benchmarks/scale_h200.py

The script predicts streamed images and training steps. The inputs of the simulation are two measured results: the DMA
peak of the link, and the time of a step on a batch that stays on the GPU.
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
    peak_bytes_per_second = streamed["page-locked DMA peak"]["speed"] * 1e9
    print("| case | measured ms | predicted ms | predicted / measured |\n|---|---|---|---|")
    streaming = predict_streaming(streamed, peak_bytes_per_second)
    for name, measured, predicted in [*streaming, *predict_training(cases["gpu-step"], peak_bytes_per_second)]:
        print(f"| {name} | {measured * 1e3:.3f} | {predicted * 1e3:.3f} | {predicted / measured:.2f} |")


def predict_streaming(
    rows: dict[str, dict[str, float]], link_bytes_per_second: float
) -> Iterator[tuple[str, float, float]]:
    """Yield the measured and the predicted seconds per batch, without compute."""
    predicted = predict_step_seconds(0.0, link_bytes_per_second)
    for label, row in rows.items():
        if label.startswith("forebay"):
            yield f"a batch, {label}", BATCH_ROWS * ROW_NBYTES / (row["speed"] * 1e9), predicted


def predict_training(rows: list[dict[str, Any]], link_bytes_per_second: float) -> Iterator[tuple[str, float, float]]:
    """Yield the measured and the predicted seconds per step.

    Computation takes slightly longer than the copy of a batch.
    """
    for row in rows:
        columns = medians(row)
        predicted = predict_step_seconds(columns["alone"] / 1e3, link_bytes_per_second)
        yield f"a step, {row['label']}", columns["fed"] / 1e3, predicted


def predict_step_seconds(compute_seconds: float, link_bytes_per_second: float) -> float:
    data = Data(rows=28_672, row_nbytes=ROW_NBYTES)
    host = Host(link_bytes_per_second=link_bytes_per_second)
    return simulate(Scenario(data, Training(BATCH_ROWS, compute_seconds), host=host)).step_seconds


def medians(row: dict[str, Any]) -> dict[str, float]:
    return {name: column["median"] for name, column in row["columns"].items()}


if __name__ == "__main__":
    main()
