"""Captures for the rules about batches: input waits, loaders, batches that the loop makes, and batch sizes."""

from tests.doctor.captures import (
    OTHER,
    TENSORFLOW_GPU,
    KiB,
    MiB,
    batch,
    build,
    loop,
    ops,
    prepare,
    run,
    tensorflow_loop,
    to_gpu,
    torch_loop,
    upload,
)

__all__ = ["FAULTS", "WARNINGS", "NEAR_MISSES"]

FAULTS = {
    "a loader that cannot keep up": ("input_bound", loop(batch(ms=5, line=9, workers=4)), 9),
    "a slow generator": (
        "input_bound",
        loop(batch("generator", 5, line=9).containing(prepare("generator", 4.9, line=10))),
        10,
    ),
    "a slow map on a thread of tf.data": (
        "input_bound",
        loop(
            prepare("map", 4.9, line=10, thread=OTHER),
            batch("tf.data", 5, line=9, prefetch=True),
            frameworks=TENSORFLOW_GPU,
        ),
        10,
    ),
    "arrays given to fit": ("input_bound", tensorflow_loop(batch("Model.fit", 3, line=9, loader="arrays")), 9),
    "rows mapped one at a time": (
        "input_bound",
        tensorflow_loop(batch("tf.data", 5, line=9, prefetch=1, mapped_at=10)),
        10,
    ),
    "no workers for slow rows": (
        "loader",
        loop(
            batch(ms=5, line=9, workers=0).containing(prepare("row", 0.1, line=10, times=40)), before=[build(line=11)]
        ),
        11,
    ),
    "a map of rows on busy cores": (
        "loader",
        tensorflow_loop(
            batch("tf.data", 4, line=9, prefetch=False, batch_rows=100, row_map=10), facts={"busy_cores": 7.9}
        ),
        9,
    ),
    "tf.data without prefetch": (
        "loader",
        loop(batch("tf.data", 4, line=9, prefetch=False), frameworks=TENSORFLOW_GPU),
        9,
    ),
    "a loader that does not pin": (
        "loader",
        loop(batch(ms=0.1, line=9, workers=4, pinned=False), to_gpu(4, line=12, nbytes=32 * MiB)),
        12,
    ),
    "non_blocking out of pageable memory": ("loader", loop(to_gpu(4, line=12, nbytes=32 * MiB, non_blocking=True)), 12),
    "rows loaded by the loop": (
        "made_in_loop",
        tensorflow_loop(prepare("row", 4, line=9), upload("tf.constant", 0.1, line=10), run(line=11)),
        10,
    ),
    "a row at a time": (
        "small_batch",
        torch_loop(batch(ms=0.02, line=26, batch_rows=1, nbytes=400, workers=0), ms=1),
        26,
    ),
    "a few numbers at a time, on a GPU": ("small_batch", loop(upload(ms=0.01, line=26, nbytes=2 * KiB), ms=1), 26),
}

WARNINGS = {
    "a shuffle buffer of all memory": (
        "loader",
        loop(batch("tf.data", 0.1, batch_rows=4, nbytes=4 * MiB), before=[build(line=28, shuffle_rows=20_000)] * 2),
        28,
    )
}

NEAR_MISSES = {
    "a short wait for input": ("input_bound", loop(batch(ms=0.4, workers=4))),
    "a slow producer on another thread": ("input_bound", loop(prepare("map", 9, thread=OTHER), batch(ms=0.1))),
    "a loader without workers": ("input_bound", loop(batch(ms=5, workers=0).containing(prepare("row", 4.9)))),
    "no workers for quick rows": ("loader", loop(batch(ms=0.3, workers=0).containing(prepare("row", 0.2)))),
    "no workers for a loader that is slow itself": ("loader", loop(batch(ms=5, workers=0))),
    "tf.data that prefetches": ("loader", loop(batch("tf.data", 4, prefetch=True), frameworks=TENSORFLOW_GPU)),
    "a loader that pins": (
        "loader",
        loop(batch(ms=0.1, pinned=True), upload("Tensor.to", 1, pinned=True, device="cuda:0")),
    ),
    "a small shuffle buffer": (
        "loader",
        loop(batch("tf.data", 0.1, batch_rows=4, nbytes=4 * KiB), before=[build(shuffle_rows=20_000)]),
    ),
    "a shuffle buffer of rows of unknown size": ("loader", loop(before=[build(shuffle_rows=10**9)])),
    "a conversion right after the step": ("made_in_loop", tensorflow_loop(upload(ms=0.1), run(ms=9))),
    "work of PyTorch between two uploads": (
        "made_in_loop",
        torch_loop(upload(ms=0.1), prepare(ms=4), upload("torch.zeros", 0.1)),
    ),
    "rows made while an unrecorded GPU may compute": (
        "made_in_loop",
        loop(prepare("row", 4), upload("tf.constant", 0.1), run(), frameworks=TENSORFLOW_GPU),
    ),
    "operations between a step and the next upload": (
        "made_in_loop",
        tensorflow_loop(ops(100, 5), upload("tf.constant", 0.1)),
    ),
    "what a compiled call does before it converts its arguments": (
        "made_in_loop",
        tensorflow_loop(run(ms=9).containing(prepare("row", 4), upload("tf.function", 0.1))),
    ),
    "a large batch": ("small_batch", loop(upload(ms=0.01, nbytes=MiB), ms=1)),
    "a small batch for a long step": ("small_batch", loop(upload(ms=0.01, nbytes=2 * KiB), ms=50)),
    "a small batch on the CPU": ("small_batch", torch_loop(upload(ms=0.01, nbytes=2 * KiB), ms=1)),
    "a small batch for a compiled step": ("small_batch", loop(upload(ms=0.01, nbytes=2 * KiB), run(ms=0.8), ms=1)),
    "a small batch for an eager step": (
        "small_batch",
        loop(upload(ms=0.01, nbytes=2 * KiB), ops(90, 0.8), ms=1, frameworks=TENSORFLOW_GPU),
    ),
}
