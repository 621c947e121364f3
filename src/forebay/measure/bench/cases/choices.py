"""The cases of `forebay bench` with chosen rows, combined sources and windows of a series."""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["CHOICES", "CHOICE_CASES", "PLAIN_SHUFFLE"]

PLAIN_SHUFFLE = "forebay shuffle"
CHOICES = {  # label: the pipeline in contenders/forebay.py
    "forebay select half": "selected",
    "forebay split half": "split",
    "forebay sample": "sampled",
    "forebay interleave of three": "interleaved",
    "forebay concat of three": "concatenated",
}
_ROWS_PER_SECOND = (ResultColumn("idle", "rows/s", "rows/s", ratio=True),)

CHOICE_CASES: tuple[Case, ...] = (
    Case(
        name="chosen-rows",
        title="1M x 100 float32, batch 1024: half of the rows, weighted sampling, three sources",
        meaning="The pipelines choose or combine rows. The baseline is a plain shuffle of all rows.",
        work=Workload(1_000_000, (100,), 1024),
        meter="throughput",
        columns=_ROWS_PER_SECOND,
        entries=(
            Entry(PLAIN_SHUFFLE, "forebay"),
            *(Entry(label, "forebay", {"source": source}) for label, source in CHOICES.items()),
            Entry("SubsetRandomSampler, tuned", "torch_sampler", {"choice": "select"}),
            Entry("WeightedRandomSampler, tuned", "torch_sampler", {"choice": "sample"}),
            Entry("tf.data sample_from_datasets", "tf_mixture"),
            Entry("Grain mix", "grain_mixture"),
        ),
        baseline=PLAIN_SHUFFLE,
        targets=(
            *(PerformanceTarget(label, "idle", at_least=0.9, over=PLAIN_SHUFFLE) for label in CHOICES),
            PerformanceTarget("forebay sample", "idle", at_least=1, over="WeightedRandomSampler, tuned"),
            PerformanceTarget("forebay interleave of three", "idle", at_least=1, over="tf.data sample_from_datasets"),
            PerformanceTarget("forebay interleave of three", "idle", at_least=1, over="Grain mix"),
        ),
    ),
    Case(
        name="windows",
        title="200k windows of 64 x 8 float32 of one series, stride 1, batch 256, shuffled",
        meaning="The rows are windows of a series. The baseline is an array that has a copy of every window.",
        work=Workload(200_000, (64, 8), 256),
        meter="throughput",
        columns=_ROWS_PER_SECOND,
        entries=(
            Entry("forebay, copied windows", "forebay"),
            Entry("forebay window", "forebay", {"source": "windows"}),
            Entry("Keras timeseries dataset", "tf_timeseries"),
            Entry("DataLoader unfold, tuned", "torch_windows"),
        ),
        baseline="forebay, copied windows",
        targets=(
            PerformanceTarget("forebay window", "idle", at_least=0.9, over="forebay, copied windows"),
            PerformanceTarget("forebay window", "idle", at_least=1, over="Keras timeseries dataset"),
            PerformanceTarget("forebay window", "idle", at_least=1, over="DataLoader unfold, tuned"),
        ),
    ),
)
