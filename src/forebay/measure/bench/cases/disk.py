"""Cases of files that are not in memory: how close a feed comes to what the disk itself can give.

`fio` is the judge, at the queue depth that suits the disk best; threads of plain positioned reads stand beside it, and
for it where it is not installed.
"""

from forebay.measure.bench.model import Case, Column, Entry, Target, Work

__all__ = ["DISK_CASES"]

SPEED = Column("speed", "GB/s", "GB/s", ratio=True)
GROWN = Column("grown", "MiB", "memory grown")
CACHED = Column("cached", "MiB", "left in page cache")
COLUMNS = (SPEED, GROWN, CACHED)

BUDGET_NBYTES = 256 << 20
COUNTED = {"counted_nbytes": 4096}  # of a read: what a row has

DISK_CASES: tuple[Case, ...] = (
    Case(
        name="disk-blocks",
        title="8 GiB .npy not in memory, rows of 4 KiB, shuffled by blocks of 4 MiB",
        meaning="Blocks read once each, before they are needed, beside what fio reads from the front on.",
        work=Work(2_097_152, (1024,), 256, options={"block": 1024, "seconds": 4.0, "host_bytes": BUDGET_NBYTES}),
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
            Target("forebay", "speed", at_least=0.9, over="fio"),
            Target("forebay", "grown", at_most=BUDGET_NBYTES / 2**20),
            Target("forebay", "cached", at_most=64),
        ),
    ),
    Case(
        name="disk-rows",
        title="4 GiB .npy not in memory, rows of 4 KiB, any row anywhere",
        meaning="Every row a read of its own, at any place, beside fio's random reads: of as many bytes, and of the "
        "4608 that a direct read of such a row takes, since rows begin 128 bytes after a sector.",
        work=Work(1_048_576, (1024,), 256, options={"seconds": 3.0, "host_bytes": BUDGET_NBYTES}),
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
            Target("forebay", "speed", at_least=0.9, over="fio, as rows lie"),
            Target("forebay", "speed", at_least=0.9, over="fio"),
            Target("forebay", "grown", at_most=BUDGET_NBYTES / 2**20),
            Target("forebay", "cached", at_most=64),
        ),
    ),
)
