"""The text of `Feed.explain()` and the numbers of `Feed.stats()`."""

from typing import Any

from forebay.core.decision import Decision
from forebay.core.spec import format_nbytes
from forebay.errors import escape_control_characters
from forebay.pipeline.card import Explanation, list_fields
from forebay.pipeline.plan import Plan
from forebay.transforms.ops import Map

__all__ = ["explain", "explain_in_card", "summarise"]

MIN_BUSY_SECONDS = 0.05  # thread time of all stages together below which `explain()` prints no times of stages
# Largest widths, in characters, of the columns of names and choices. So one long name does not widen all other lines.
MAX_NAME_WIDTH, MAX_CHOICE_WIDTH = 20, 24
# The stages in which threads fill a slot. The recorder has further totals under other names, such as "wait".
_STAGES = ("order", "read", "gather", "transform", "stage", "fetch")


def summarise(plan: Plan, recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of `Feed.stats()`: totals of the run, and numbers of the plan.

    `recorded` is the result of `Recorder.capture`.
    """
    totals = recorded["stages"]
    stages = {name: dict(total) for name, total in totals.items() if name in _STAGES}
    waits = totals.get("wait", {"count": 0})
    epochs = totals.get("epoch", {"seconds": 0.0, "count": 0, "nbytes": 0})
    return {
        **recorded["received"],
        "waits": waits["count"],
        "slowest_stage": max(stages, key=lambda name: stages[name]["seconds"], default=None),
        "epochs": epochs["count"],
        # The mean speed over whole epochs. Their time includes the work of the consumer on each batch.
        "bytes_per_second": epochs["nbytes"] / epochs["seconds"] if epochs["seconds"] else None,
        "stages": stages,
        "threads": plan.threads,
        "planned_nbytes": plan.nbytes,
        **recorded.get("counts", {}),
    }


def explain(plan: Plan, recorded: dict[str, Any]) -> Explanation:
    """Return the plan as a table of decisions, with the measurements so far.

    `recorded` is the result of `Recorder.capture`.
    """
    plan_input = plan.input
    lines = [
        f"feed to {plan_input.framework} on {plan_input.engine}: batches of {plan_input.batch_size}, "
        f"{list_fields(plan_input.structure.paths, plan_input.specs)}"
    ]
    decisions = [*plan.decisions, *_notes(recorded)]
    name_width = min(max(len(decision.name) for decision in decisions), MAX_NAME_WIDTH)
    choice_width = min(max(len(decision.choice) for decision in decisions), MAX_CHOICE_WIDTH)
    lines += [
        f"  {decision.name:<{name_width}}  {decision.choice:<{choice_width}}  {decision.why}" for decision in decisions
    ]
    stats = summarise(plan, recorded)
    if stats["batches"]:
        lines.append(_describe_run(stats, plan, recorded))
    return Explanation(escape_control_characters("\n".join(lines)))


def explain_in_card(plan: Plan, recorded: dict[str, Any]) -> str:
    """Return the text of `explain` as an HTML card for a notebook."""
    stats = summarise(plan, recorded)
    lines = _describe_run(stats, plan, recorded).splitlines() if stats["batches"] else ()
    return plan.card("Feed", notes=_notes(recorded), lines=lines)


def _notes(recorded: dict[str, Any]) -> list[Decision]:
    return [Decision(name, *note) for name, note in recorded.get("notes", {}).items()]


def _decodes(plan: Plan, recorded: dict[str, Any]) -> bool:
    """Return whether the source decodes the rows in the stage "gather"."""
    return any(decision.name == "decoder" for decision in (*plan.decisions, *_notes(recorded)))


def _describe_run(stats: dict[str, Any], plan: Plan, recorded: dict[str, Any]) -> str:
    text = (
        f"so far: {stats['batches']} batches, {format_nbytes(stats['nbytes'])}; "
        f"the consumer waited {stats['wait_seconds']:.3f} s in total, for 99 % of the batches at most "
        f"{stats['wait_p99_seconds'] * 1e3:.3g} ms"
    )
    if stats["bytes_per_second"]:
        speed, epochs = stats["bytes_per_second"] / 1e9, stats["epochs"]
        plural = "s" if epochs > 1 else ""
        text += f"\n  measured: {speed:.3g} GB/s over {epochs} epoch{plural}, including the time of the consumer"
    skipped = stats.get("skipped_rows", {"count": 0})
    if skipped["count"]:
        first = skipped["first"][0]
        name = f" ({first['name']})" if "name" in first else ""
        text += (
            f"\n  skipped: {skipped['count']} of {skipped['received_rows']} rows, first row {first['row']}{name} in "
        )
        text += f"{first['map']}: {first['error']}"
    if sum(stage["seconds"] for stage in stats["stages"].values()) < MIN_BUSY_SECONDS:
        return text
    names = dict.fromkeys(stats["stages"]) | ({"gather": "read and decode"} if _decodes(plan, recorded) else {})
    stages = ", ".join(f"{names[name] or name} {stage['seconds']:.3f} s" for name, stage in stats["stages"].items())
    slowest = stats["slowest_stage"]
    text += f"\n  thread time: {stages}; {names[slowest] or slowest} is the slowest stage"
    has_map = any(isinstance(transform, Map) for transform in plan.thread_transforms)
    if stats["slowest_stage"] != "transform" or not has_map:
        return text
    return f"{text}\n  if the consumer waits for a map of pure Python code, write map(function, where='process')"
