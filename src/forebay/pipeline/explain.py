"""What a feed says of itself: the plan with its reasons, and how it went."""

from typing import Any

from forebay.core.decision import Reason
from forebay.core.spec import format_nbytes
from forebay.pipeline.plan import Plan

__all__ = ["explain", "summarise"]

ENOUGH_SECONDS = 0.05  # less work than this says nothing about which stage is slow
_STAGES = ("order", "read", "gather", "transform", "stage", "fetch")


def summarise(plan: Plan, capture: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run: batches, bytes, waiting, and the stage that takes longest."""
    stages = {name: dict(total) for name, total in capture["stages"].items() if name in _STAGES}
    given = capture["stages"].get("given", {"count": 0, "nbytes": 0})
    waited = capture["stages"].get("wait", {"seconds": 0.0, "count": 0})
    slowest = max(stages, key=lambda name: stages[name]["seconds"], default=None)
    return {
        "batches": given["count"],
        "nbytes": given["nbytes"],
        "wait_seconds": waited["seconds"],
        "waits": waited["count"],
        "slowest_stage": slowest,
        "epochs": capture["stages"].get("epoch", {"count": 0})["count"],
        "bytes_per_second": _speed(capture["stages"].get("epoch")),
        "stages": stages,
        "threads": plan.threads,
        "planned_nbytes": plan.nbytes,
        **capture.get("counts", {}),
    }


def _speed(epochs: dict[str, Any] | None) -> float | None:
    """Over whole epochs, whatever the consumer did in them."""
    return epochs["nbytes"] / epochs["seconds"] if epochs and epochs["seconds"] else None


def explain(plan: Plan, capture: dict[str, Any]) -> str:
    """The plan as a table of choices and reasons; after a run, what was measured too."""
    demand = plan.demand
    lines = [f"feed to {demand.target} on {demand.engine}: batches of {demand.batch_rows} rows, {_fields(plan)}"]
    notes = [Reason(name, *note) for name, note in capture.get("notes", {}).items()]
    reasons = [*plan.reasons, *notes]
    width = max(len(reason.name) for reason in reasons)
    choice = max(len(reason.choice) for reason in reasons)
    lines += [f"  {reason.name:<{width}}  {reason.choice:<{choice}}  {reason.why}" for reason in reasons]
    stats = summarise(plan, capture)
    if stats["batches"]:
        lines.append(_measured(stats))
    return "\n".join(lines)


def _fields(plan: Plan) -> str:
    return ", ".join(
        f"{name} {spec}" for name, spec in zip(plan.demand.structure.paths, plan.demand.specs, strict=True)
    )


def _measured(stats: dict[str, Any]) -> str:
    busy = sum(stage["seconds"] for stage in stats["stages"].values())
    told = (
        f"so far: {stats['batches']} batches, {format_nbytes(stats['nbytes'])}; "
        f"the consumer waited {stats['wait_seconds']:.3f} s"
    )
    if stats["bytes_per_second"]:
        speed, epochs = stats["bytes_per_second"] / 1e9, stats["epochs"]
        told += f"\n  measured: {speed:.3g} GB/s over {epochs} epoch{'s' if epochs > 1 else ''}, consumer included"
    if busy < ENOUGH_SECONDS:
        return told
    stages = ", ".join(f"{name} {stage['seconds']:.3f} s" for name, stage in stats["stages"].items())
    return f"{told}\n  threads worked: {stages}; {stats['slowest_stage']} is the slowest stage"
