"""The rule that warns about memory that is nearly full or grows with every step."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.memory import HOST, PAGE_LOCKED, MemoryLevel, memory_levels
from forebay.doctor.model.formatting import format_percent
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MAX_USED_SHARE = 0.9  # share of the memory; the rule reports a larger share at the peak, as the torch profiler does
# Steps until the memory is full. The rule reports growth that leaves fewer steps than a run of a few hours has.
MIN_STEPS_LEFT = 100_000

_LESS_MEMORY_CODE = {
    "torch": "with torch.autocast('cuda', dtype=torch.bfloat16): ...   # or torch.utils.checkpoint",
    "tensorflow": "keras.mixed_precision.set_global_policy('mixed_bfloat16')   # or use a smaller batch",
    "jax": "block = jax.checkpoint(block)   # recomputes activations instead of storing them; or use a smaller batch",
    "cupy": "cupy.get_default_memory_pool().free_all_blocks()   # between phases; or use a smaller batch",
}
_MAPPED_FILES_CODE = (
    'import forebay as fb\nfeed = fb.from_files("data/*.npy").shuffle(seed=0, block=4096).batch(256)\\\n'
)
_MAPPED_FILES_CODE += '    .feed("numpy", host_bytes="500MB")   # maps the files, never loads them whole'


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding for each memory that was nearly full or will soon be full."""
    levels = [level for level in memory_levels(view) if level.place != PAGE_LOCKED]
    for level in levels or _levels_at_end(view):
        where = "Host memory" if level.place == HOST else f"{level.place} of {level.framework}"
        code = (
            _MAPPED_FILES_CODE
            if level.place == HOST
            else _LESS_MEMORY_CODE.get(level.framework or "", "batch_size //= 2")
        )
        if level.share > MAX_USED_SHARE:
            yield _full_finding(where, level, code)
        elif level.growth_nbytes and _steps_left(level) < MIN_STEPS_LEFT:
            yield _growth_finding(where, level)


def _levels_at_end(view: CaptureView) -> Iterator[MemoryLevel]:
    """Yield the peak memory use of the whole run, for captures without memory samples."""
    for name, facts in view.frameworks.items():
        if facts.get("gpus"):
            yield MemoryLevel("The device", name, None, None, facts.get("peak_nbytes"), facts.get("total_nbytes"), 0.0)
    peak, total = view.capture.facts.get("peak_nbytes"), view.capture.machine.get("memory_nbytes")
    yield MemoryLevel(HOST, None, None, None, peak, total, 0.0)


def _full_finding(where: str, level: MemoryLevel, code: str) -> Finding:
    """Build the finding for memory that is nearly full."""
    peak, total = level.peak_nbytes or 0, level.total_nbytes or 0
    amount = f"{format_nbytes(peak)} of {format_nbytes(total)}"
    return Finding(
        rule="out_of_memory",
        title=f"{where} was {format_percent(level.share)} full at its peak ({amount})",
        line=None,
        seconds=0.0,
        cures=(Cure("use less memory at a time", code, "this cure saves memory, not time"),),
        evidence=(f"{format_nbytes(max(0, total - peak))} were free at the peak.",),
    )


def _steps_left(level: MemoryLevel) -> float:
    """Return the number of steps until memory is full."""
    free_nbytes = (level.total_nbytes or 0) - (level.used_nbytes or 0)
    return free_nbytes / level.growth_nbytes if level.total_nbytes else float("inf")


def _growth_finding(where: str, level: MemoryLevel) -> Finding:
    """Build the finding for memory that grows with every step.

    Usual causes are a sum of losses that keeps the graph of every step, or a list of results on the device.
    """
    left = f"{_steps_left(level):,.0f} more steps will fill it"
    code = _STORE_CODE.get(level.framework or "", _STORE_CODE["jax"])
    return Finding(
        rule="out_of_memory",
        title=f"{where} needs {format_nbytes(level.growth_nbytes)} more memory with every step; {left}",
        line=None,
        seconds=0.0,
        cures=(Cure("store numbers, not tensors", code, "this cure saves memory, not time"),),
        evidence=(
            f"{format_nbytes(level.used_nbytes or 0)} were in use at the first reading in the loop. "
            "Every later reading was larger.",
        ),
    )


_STORE_CODE = {
    "torch": "total += loss.detach()   # `total += loss` would keep the graph of every step",
    "tensorflow": "total.assign_add(loss)   # a tf.Variable instead of a list of tensors",
    "jax": "losses.append(float(loss))   # only in every hundredth step; a list of arrays stays on the device",
}
