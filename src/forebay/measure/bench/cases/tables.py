"""The cases of `forebay bench` with DataFrames and sparse rows."""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["TABLE_CASES"]

_ROWS_PER_SECOND = (ResultColumn("idle", "rows/s", "rows/s", ratio=True),)

TABLE_CASES: tuple[Case, ...] = (
    Case(
        name="frames",
        title="1M rows of a pandas DataFrame with 20 float32 columns, batch 1024, shuffled",
        meaning="Forebay delivers the columns as one array per batch, and tf.data one tensor per column. The "
        "loader 'torch index loop' first converts the frame to one tensor of PyTorch.",
        work=Workload(1_000_000, (20,), 1024),
        meter="throughput",
        columns=_ROWS_PER_SECOND,
        entries=(
            Entry("torch index loop", "frames_torch"),
            Entry("forebay", "frames_forebay", {"source": "frame"}),
            Entry("tf.data from_tensor_slices", "frames_tf"),
        ),
        baseline="torch index loop",
        targets=(
            PerformanceTarget("forebay", "idle", at_least=1, over="torch index loop"),
            PerformanceTarget("forebay", "idle", at_least=1, over="tf.data from_tensor_slices"),
        ),
    ),
    Case(
        name="sparse-rows",
        title="200k sparse rows (CSR) of 1000 float32, 20 of them not 0, to dense batches of 256, shuffled",
        meaning="The rows of a SciPy matrix become dense on the host.",
        work=Workload(200_000, (1000,), 256),
        meter="throughput",
        columns=_ROWS_PER_SECOND,
        entries=(
            Entry("SciPy slices, toarray", "sparse_scipy"),
            Entry("forebay", "sparse_forebay", {"source": "sparse"}),
        ),
        baseline="SciPy slices, toarray",
        targets=(PerformanceTarget("forebay", "idle", at_least=1, over="SciPy slices, toarray"),),
    ),
)
