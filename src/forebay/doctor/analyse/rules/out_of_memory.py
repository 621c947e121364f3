"""Memory nearly full, on the device or the host: a longer sequence or a larger last batch ends the run. It warns."""

from collections.abc import Iterator

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.finding import Cure, Finding
from forebay.doctor.words import percent
from forebay.spec import format_nbytes

__all__ = ["examine"]

MOST = 0.9  # of memory at the peak, as torch's own profiler has it

_LESS = {
    "torch": "with torch.autocast('cuda', dtype=torch.bfloat16): ...   # or torch.utils.checkpoint",
    "tensorflow": "keras.mixed_precision.set_global_policy('mixed_bfloat16')   # or a smaller batch",
    "jax": "block = jax.checkpoint(block)   # computes again what it does not keep; or a smaller batch",
    "cupy": "cupy.get_default_memory_pool().free_all_blocks()   # between phases; or a smaller batch",
}
_MAPPED = 'import forebay as fb\nfeed = fb.from_files("data/*.npy").shuffle(seed=0, block=4096).batch(256)\\\n'
_MAPPED += '    .feed("numpy", host_bytes="500MB")   # mapped, never loaded whole'


def examine(case: Case) -> Iterator[Finding]:
    for name, facts in case.frameworks.items():
        if facts.get("gpus"):
            total = facts.get("total_nbytes") or 0
            yield from _full(
                f"The device of {name}", facts.get("peak_nbytes") or 0, total, _LESS.get(name, "batch //= 2")
            )
    yield from _full(
        "The host",
        case.capture.facts.get("peak_nbytes") or 0,
        case.capture.machine.get("memory_nbytes") or 0,
        _MAPPED,
    )


def _full(where: str, peak: int, total: int, code: str) -> Iterator[Finding]:
    if not peak > MOST * total > 0:
        return
    yield Finding(
        rule="out_of_memory",
        title=f"{where} was {percent(peak / total)} full at its peak, {format_nbytes(peak)} of {format_nbytes(total)}",
        line=None,
        seconds=0.0,
        cures=(Cure("need less at a time", code, 0.0, 0.0, "room, not time"),),
        evidence=(f"{format_nbytes(max(0, total - peak))} were left",),
    )
