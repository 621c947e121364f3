"""The case of `forebay bench` with the first batch of 100 million rows."""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["FIRST_BATCH_CASES"]

# label: the pipeline in contenders/first_batches.py
_WITHOUT_PASS = {
    "select, mask": "mask",
    "select, row numbers": "numbers",
    "split": "split",
    "skip": "skip",
    "interleave of three": "interleave",
    "window": "window",
}
_AFTER_ONE_PASS = {  # one pass over all weights, labels or lengths comes before the first batch
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
        "pack and token batches need one pass over all weights, labels or lengths. The data is already in memory. "
        "The first batch of a process, which includes imports, is not counted. Lower is better.",
        work=Workload(100_000_000, (), 256, dtype="uint8"),
        meter="later_first_batch",
        columns=(ResultColumn("first", "ms", "first batch"),),
        entries=tuple(
            Entry(f"forebay {label}", "forebay_first_batch", {"rows": rows})
            for label, rows in (_WITHOUT_PASS | _AFTER_ONE_PASS).items()
        ),
        targets=tuple(PerformanceTarget(f"forebay {label}", "first", at_most=1000) for label in _WITHOUT_PASS),
    ),
)
