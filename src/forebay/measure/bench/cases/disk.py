"""The disk cases of `forebay bench`: reads of files outside the page cache.

The baseline is `fio` at the fastest of several queue depths. Threads that call `preadv` are a second reference, which
does not need fio. The option "time_factor" multiplies the length of a sample.
"""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["DISK_CASES"]

SPEED = ResultColumn("speed", "GB/s", "GB/s", ratio=True)
GROWN = ResultColumn("grown", "MiB", "memory grown")
CACHED = ResultColumn("cached", "MiB", "left in page cache")
COLUMNS = (SPEED, GROWN, CACHED)

BUDGET_NBYTES = 256 << 20  # memory budget of the feed, and target for the growth of its process
UNALIGNED_FIO = "fio, 4608 bytes"
COUNT_ROW_BYTES = {"counted_nbytes": 4096}  # the speed counts the 4096 bytes of a row, although fio reads 4608

DISK_CASES: tuple[Case, ...] = (
    Case(
        name="disk-blocks",
        title="8 GiB .npy not in memory, rows of 4 KiB, shuffled by blocks of 4 MiB",
        meaning="Forebay prefetches each block once. fio reads the file sequentially.",
        work=Workload(
            2_097_152, (1024,), 256, options={"block": 1024, "time_factor": 4.0, "host_bytes": BUDGET_NBYTES}
        ),
        meter="disk",
        columns=COLUMNS,
        entries=(
            Entry("fio", "disk_fio", {"file": "disk", "pattern": "read", "read_nbytes": 1 << 20}),
            Entry("threads of preadv", "disk_plain", {"file": "disk", "pattern": "read", "read_nbytes": 1 << 20}),
            Entry("forebay", "disk_feed", {"file": "disk"}),
            Entry("np.take mapped", "disk_mapped", {"file": "disk"}),
        ),
        baseline="fio",
        files=("disk",),
        targets=(
            PerformanceTarget("forebay", "speed", at_least=0.9, over="fio"),
            PerformanceTarget("forebay", "grown", at_most=BUDGET_NBYTES / 2**20),
            PerformanceTarget("forebay", "cached", at_most=64),
        ),
    ),
    Case(
        name="disk-rows",
        title="4 GiB .npy not in memory, rows of 4 KiB, fully shuffled",
        meaning="Each row is one random read. The first fio entry reads 4096 aligned bytes. The second fio entry reads "
        "4608 bytes: rows begin 128 bytes after the start of a sector, so a direct read of a row takes nine sectors.",
        work=Workload(1_048_576, (1024,), 256, options={"time_factor": 3.0, "host_bytes": BUDGET_NBYTES}),
        meter="disk",
        columns=COLUMNS,
        entries=(
            Entry("fio", "disk_fio", {"file": "disk", "pattern": "randread", "read_nbytes": 4096}),
            Entry(
                UNALIGNED_FIO,
                "disk_fio",
                {"file": "disk", "pattern": "randread", "read_nbytes": 4608} | COUNT_ROW_BYTES,
            ),
            Entry("threads of preadv", "disk_plain", {"file": "disk", "pattern": "randread", "read_nbytes": 4096}),
            Entry("forebay", "disk_feed", {"file": "disk"}),
            Entry("np.take mapped", "disk_mapped", {"file": "disk"}),
        ),
        baseline="fio",
        files=("disk",),
        targets=(
            PerformanceTarget("forebay", "speed", at_least=0.9, over=UNALIGNED_FIO),
            PerformanceTarget("forebay", "speed", at_least=0.9, over="fio"),
            PerformanceTarget("forebay", "grown", at_most=BUDGET_NBYTES / 2**20),
            PerformanceTarget("forebay", "cached", at_most=64),
        ),
    ),
)
