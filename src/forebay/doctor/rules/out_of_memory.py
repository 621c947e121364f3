"""Memory nearly full, or fuller with every step: a larger last batch, or time, ends the run. It warns."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.memory import HOST, PAGE_LOCKED, Level, levels_of
from forebay.doctor.model.formatting import percent
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MOST = 0.9  # of memory at the peak, as torch's own profiler has it
FEWEST_STEPS_LEFT = 100_000  # at the pace memory grows at: a run of some hours

_LESS = {
    "torch": "with torch.autocast('cuda', dtype=torch.bfloat16): ...   # or torch.utils.checkpoint",
    "tensorflow": "keras.mixed_precision.set_global_policy('mixed_bfloat16')   # or a smaller batch",
    "jax": "block = jax.checkpoint(block)   # computes again what it does not keep; or a smaller batch",
    "cupy": "cupy.get_default_memory_pool().free_all_blocks()   # between phases; or a smaller batch",
}
_MAPPED = 'import forebay as fb\nfeed = fb.from_files("data/*.npy").shuffle(seed=0, block=4096).batch(256)\\\n'
_MAPPED += '    .feed("numpy", host_bytes="500MB")   # mapped, never loaded whole'


def examine(case: Case) -> Iterator[Finding]:
    levels = [level for level in levels_of(case) if level.place != PAGE_LOCKED]
    for level in levels or _told_at_the_end(case):
        where = "The host" if level.place == HOST else f"{level.place} of {level.framework}"
        code = _MAPPED if level.place == HOST else _LESS.get(level.framework or "", "batch //= 2")
        if level.share > MOST:
            yield _full(where, level, code)
        elif level.growth_nbytes and _steps_left(level) < FEWEST_STEPS_LEFT:
            yield _grows(where, level)


def _told_at_the_end(case: Case) -> Iterator[Level]:
    """Of a capture without readings."""
    for name, facts in case.frameworks.items():
        if facts.get("gpus"):
            yield Level("The device", name, None, None, facts.get("peak_nbytes"), facts.get("total_nbytes"), 0.0)
    peak, total = case.capture.facts.get("peak_nbytes"), case.capture.machine.get("memory_nbytes")
    yield Level(HOST, None, None, None, peak, total, 0.0)


def _full(where: str, level: Level, code: str) -> Finding:
    peak, total = level.peak_nbytes or 0, level.total_nbytes or 0
    amount = f"{format_nbytes(peak)} of {format_nbytes(total)}"
    return Finding(
        rule="out_of_memory",
        title=f"{where} was {percent(level.share)} full at its peak, {amount}",
        line=None,
        seconds=0.0,
        cures=(Cure("need less at a time", code, 0.0, 0.0, "room, not time"),),
        evidence=(f"{format_nbytes(max(0, total - peak))} were left",),
    )


def _steps_left(level: Level) -> float:
    """Until it is full, at the pace it grows at."""
    room = (level.total_nbytes or 0) - (level.used_nbytes or 0)
    return room / level.growth_nbytes if level.total_nbytes else float("inf")


def _grows(where: str, level: Level) -> Finding:
    """What holds on to the past: a loss that is added up with its graph, a list of results that stay on the device."""
    left = f"{_steps_left(level):,.0f} more steps fill it"
    code = _KEPT.get(level.framework or "", _KEPT["jax"])
    return Finding(
        rule="out_of_memory",
        title=f"{where} takes {format_nbytes(level.growth_nbytes)} more with every step; {left}",
        line=None,
        seconds=0.0,
        cures=(Cure("keep numbers, not tensors", code, 0.0, 0.0, "room, not time"),),
        evidence=(f"{format_nbytes(level.used_nbytes or 0)} were in use in the loop, more at every reading",),
    )


_KEPT = {
    "torch": "total += loss.detach()   # not `total += loss`, which keeps every step's graph",
    "tensorflow": "total.assign_add(loss)   # a tf.Variable; not a list of tensors",
    "jax": "losses.append(float(loss))   # every hundredth step; a list of arrays keeps them on the device",
}
