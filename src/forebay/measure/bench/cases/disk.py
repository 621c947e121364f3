"""The disk cases: files that are not in the page cache, read as close to the speed of the disk as possible.

The baseline is `fio` at the best queue depth for the disk. Threads with plain positioned reads are a second reference,
and the only one if fio is not installed.
"""

from forebay.measure.bench.model import Case, Entry, PerformanceTarget, ResultColumn, Workload

__all__ = ["DISK_CASES"]

SPEED = ResultColumn("speed", "GB/s", "GB/s", ratio=True)
GROWN = ResultColumn("grown", "MiB", "memory grown")
CACHED = ResultColumn("cached", "MiB", "left in page cache")
COLUMNS = (SPEED, GROWN, CACHED)

BUDGET_NBYTES = 256 << 20
COUNTED = {"counted_nbytes": 4096}  # bytes of each read that belong to the row

DISK_CASES: tuple[Case, ...] = (
    Case(
        name="disk-blocks",
        title="8 GiB .npy not in memory, rows of 4 KiB, shuffled by blocks of 4 MiB",
        meaning="Forebay prefetches each block once. fio reads the file sequentially.",
        work=Workload(2_097_152, (1024,), 256, options={"block": 1024, "seconds": 4.0, "host_bytes": BUDGET_NBYTES}),
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
        meaning="Each row is one random read. fio reads 4096 bytes at random. The second fio reads 4608 bytes, as a "
        "direct read of a row does, because rows begin 128 bytes after the start of a sector.",
        work=Workload(1_048_576, (1024,), 256, options={"seconds": 3.0, "host_bytes": BUDGET_NBYTES}),
        meter="disk",
        columns=COLUMNS,
        entries=(
            Entry("fio", "disk_fio", {"file": "disk", "pattern": "randread", "read_nbytes": 4096}),
            Entry(
                "fio, as rows lie", "disk_fio", {"file": "disk", "pattern": "randread", "read_nbytes": 4608} | COUNTED
            ),
            Entry("threads of preadv", "disk_plain", {"file": "disk", "pattern": "randread", "read_nbytes": 4096}),
            Entry("forebay", "disk_feed", {"file": "disk"}),
            Entry("np.take mapped", "disk_mapped", {"file": "disk"}),
        ),
        baseline="fio",
        files=("disk",),
        targets=(
            PerformanceTarget("forebay", "speed", at_least=0.9, over="fio, as rows lie"),
            PerformanceTarget("forebay", "speed", at_least=0.9, over="fio"),
            PerformanceTarget("forebay", "grown", at_most=BUDGET_NBYTES / 2**20),
            PerformanceTarget("forebay", "cached", at_most=64),
        ),
    ),
)
