"""Step times from the marks of `step_clock`, compared with the diagnosis of the doctor."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.wild.step_clock import BLOCK

from forebay.doctor.model.capture import Capture

WARM_UP = 10  # steps before the first step that counts


def read_marks(path: Path) -> list[int]:
    """Return the starts of the steps in nanoseconds; an empty list if the script was killed."""
    return list(json.loads(path.read_text())) if path.exists() else []


def step_seconds(marks: Sequence[int]) -> float | None:
    """Return the time of a step after the warm-up.

    The steps of a block share its time. The median of the blocks leaves out those with a validation or a new epoch.
    A script with few steps gets the median of its single steps, which is right only without a GPU.
    """
    marks = marks[WARM_UP:]
    if len(marks) > 3 * BLOCK:
        starts = marks[::BLOCK]
        return median((end - start) / BLOCK for start, end in itertools.pairwise(starts)) / 1e9
    return median(_differences(marks)) / 1e9 if len(marks) > 3 else None


def steps_between(marks: Sequence[int], start: float, end: float) -> float | None:
    """Return the median of the steps that lie completely between two times in nanoseconds."""
    inside = [mark for mark in marks if start <= mark <= end]
    return median(_differences(inside)) / 1e9 if len(inside) > 3 else None


def profiling_cost(plain: Sequence[int], profiled: Sequence[int], capture: Capture) -> dict[str, float | None]:
    """Compare the steps of a run with the doctor to those of a plain run.

    Both sequences are marks. The result has ratios to the plain run: `profiled` and `unprofiled` of steps, `run` of the
    whole loop.
    """
    base = steps_between(plain[WARM_UP:], 0, float("inf"))
    window = capture.window
    after = window.traced[-1] if window.traced else window.end
    parts = {"profiled": (window.start, window.end), "unprofiled": (after, float("inf"))}
    medians = {name: steps_between(profiled, *limits) for name, limits in parts.items()}
    ratios = {name: value / base if base and value else None for name, value in medians.items()}
    is_same = len(plain) == len(profiled) > 1
    return ratios | {"run": (profiled[-1] - profiled[0]) / (plain[-1] - plain[0]) if is_same else None}


def summarise(document: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of a document: its first finding with the prediction, and the other rules."""
    findings = document["findings"]
    verdict: dict[str, Any] = {"step_seconds": document["step_seconds"], "headline": document["headline"]}
    if not findings:
        return verdict | {"rule": None, "others": []}
    first = findings[0]
    best = first["cures"][0] if first["cures"] else {}
    return verdict | {
        "rule": first["rule"],
        "line": first["line"],
        "text": first["text"],
        "cure": best.get("title"),
        "predicted_seconds": best.get("step_seconds"),
        "others": [finding["rule"] for finding in findings[1:]],
    }


def reported_share(document: dict[str, Any]) -> float:
    """Return the share of the step that has a line. Documents without `step_lines` have no lines of compiled calls."""
    if found := document.get("step_lines"):
        return float(sum(row["share_of_step"] for row in found["lines"]))
    rows = [*document["crossings"], *document.get("host_lines", [])]
    return float(sum(row["share_of_step"] for row in rows if row["line"] is not None))


def sampled_share(capture: Capture) -> float | None:
    """Return the share of the profiled time in which samples of the busiest thread name a script line."""
    window = capture.window
    times: Counter[int] = Counter()
    for sample in capture.samples:
        if window.start <= sample.time <= window.end:
            times[sample.thread] += sample.nanoseconds
    return max(times.values()) / (window.end - window.start) if times else None


def compare(plain: Sequence[float], cured: Sequence[float], verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the measured speed-up and the error of the prediction.

    The error compares speed-ups: the predicted one from the step time of the doctor, the measured one from the marks.
    """
    speed_up = median(plain) / median(cured)
    result: dict[str, Any] = {"plain": list(plain), "cured": list(cured), "speed_up": speed_up, "error": None}
    if predicted := verdict.get("predicted_seconds"):
        speed_ups = sorted(verdict["step_seconds"] / seconds for seconds in predicted)
        middle = sum(speed_ups) / 2
        result |= {
            "predicted_speed_up": speed_ups,
            "error": middle / speed_up - 1,
            "is_inside": speed_ups[0] <= speed_up <= speed_ups[1],
        }
    return result


def _differences(marks: Sequence[int]) -> list[int]:
    return [end - start for start, end in itertools.pairwise(marks)]
