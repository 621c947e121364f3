"""The case of `forebay bench` with the first batch of many chosen, combined or packed rows."""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["FIRST_BATCH_CASES"]

_AT_ONCE = {  # label: the pipeline in contenders/first_batches.py
    "select, mask": "mask",
    "select, row numbers": "numbers",
    "split": "split",
    "skip": "skip",
    "interleave of three": "interleave",
    "window": "window",
}
_AFTER_ONE_PASS = {
    "sample": "sample",
    "filter": "filter",
    "pack": "pack",
    "token batches": "tokens",
}

FIRST_BATCH_CASES: tuple[Case, ...] = (
    Case(
        name="first-batch-large",
        title="first batch of 100 million rows that are chosen, combined or packed",
        meaning="first batch: time to describe a pipeline, start its feed and receive its first batch. sample, filter, "
        "pack and token batches need one pass over all weights, labels or lengths. The data is in memory before, and "
        "the first batch of a process, with imports, is not counted. Lower is better.",
        work=Workload(100_000_000, (), 256, dtype="uint8"),
        meter="later_first_batch",
        columns=(ResultColumn("first", "ms", "first batch"),),
        entries=tuple(
            Entry(f"forebay {label}", "forebay_first_batch", {"rows": rows})
            for label, rows in (_AT_ONCE | _AFTER_ONE_PASS).items()
        ),
        targets=tuple(PerformanceTarget(f"forebay {label}", "first", at_most=1000) for label in _AT_ONCE),
    ),
)
