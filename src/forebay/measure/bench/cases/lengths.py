"""The cases of `forebay bench` with rows of different length."""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["LENGTH_CASES"]

_TEXTS = {"file": "texts", "source": "packed_texts"}

LENGTH_CASES: tuple[Case, ...] = (
    Case(
        name="packing",
        title="10M texts of 1 to 2048 tokens (median 300), packed into rows of 2048, batch 64",
        meaning="texts/s: texts in the batches after the first. fill: share of the rows that is not padding. first "
        "batch: time to make a loader and receive its first batch. Forebay packs all texts in this time, and the "
        "other packers pack only the first texts. The rows have segment ids and positions.",
        work=Workload(10_000_000, (2048,), 64, dtype="uint16", options=_TEXTS),
        meter="packing",
        columns=(
            ResultColumn("texts", "rows/s", "texts/s", ratio=True),
            ResultColumn("fill", "x", "fill"),
            ResultColumn("first", "ms", "first batch"),
        ),
        entries=(
            Entry("Python first fit, 64 rows", "first_fit"),
            Entry("forebay", "forebay"),
            Entry("Grain first fit, 64 rows", "grain_packing", {"fit": "first"}),
            Entry("Grain best fit, 64 rows", "grain_packing", {"fit": "best"}),
        ),
        baseline="Python first fit, 64 rows",
        files=("texts",),
        targets=(
            PerformanceTarget("forebay", "texts", at_least=1, over="Python first fit, 64 rows"),
            PerformanceTarget("forebay", "texts", at_least=1, over="Grain first fit, 64 rows"),
            PerformanceTarget("forebay", "texts", at_least=1, over="Grain best fit, 64 rows"),
            PerformanceTarget("forebay", "fill", at_least=0.98),
        ),
    ),
)
