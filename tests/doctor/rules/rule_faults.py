"""Captures with one fault each: the rule, the capture and the line that it must name."""

from tests.doctor.captures import (
    JAX,
    NNX_CALL,
    OTHER,
    STEP_LINE,
    TENSORFLOW,
    TENSORFLOW_GPU,
    TORCH,
    GiB,
    KiB,
    MiB,
    batch,
    build,
    callback,
    compile_,
    download,
    fitted,
    keys_in_turn,
    loop,
    move,
    ops,
    prepare,
    py_function,
    run,
    same,
    sampled,
    sync,
    transform,
    upload,
    with_graph_breaks,
    with_pieces,
    with_setting,
)
from tests.doctor.histories import at_random, calling, growing, monitored, noisy, with_pauses
from tests.doctor.rules.device_faults import DEVICE_FAULTS

__all__ = ["FAULTS", "WARNINGS"]

ON_GPU = {"device": "cuda:0", "pinned": False}
LARGE_GPU = {"torch": {"gpus": 1, "free_nbytes": 40 * GiB}}

FAULTS = {
    "the same array every step": ("repeated_upload", loop(upload(ms=6, line=3, key=same)), 3),
    "the same array every step, on the CPU": (
        "repeated_upload",
        loop(upload("tf.constant", 6, line=3, key=same, device="CPU:0"), frameworks=TENSORFLOW),
        3,
    ),
    "two copies of the same array on one line": (
        "repeated_upload",
        loop(upload(ms=3, line=3, key=same), upload("Tensor.to", 3, line=3, key=same, **ON_GPU)),
        3,
    ),
    "four batches in turn": ("repeated_upload", loop(upload(ms=5, line=4, key=keys_in_turn(4))), 4),
    "fresh arrays converted": (
        "conversion_in_loop",
        loop(upload("tf.convert_to_tensor", 4, line=5), frameworks=TENSORFLOW),
        5,
    ),
    "Python lists converted": ("conversion_in_loop", loop(upload(ms=6, line=5, from_dtype="list")), 5),
    "a large copy out of pageable memory": (
        "pageable_upload",
        loop(upload("Tensor.to", 4, line=6, nbytes=32 * MiB, **ON_GPU)),
        6,
    ),
    "a batch that the first operation moves to the GPU": (
        "pageable_upload",
        loop(
            batch("tf.data", 0.1, prefetch=1, nbytes=32 * MiB),
            move("Mean", 4, line=6, source="CPU:0", target="GPU:0", nbytes=32 * MiB),
            frameworks=TENSORFLOW_GPU,
        ),
        6,
    ),
    "a move without a time inside a graph": (
        "placement",
        loop(run(ms=8), move(ms=0, line=22, nbytes=32 * MiB, timed=False), frameworks=TENSORFLOW_GPU),
        22,
    ),
    "a loss read every step": ("read_back", loop(download(ms=4, line=7)), 7),
    "a loss read every step, JAX on the CPU": (
        "read_back",
        loop(download("float(array)", 4, line=7, device="cpu:0"), frameworks=JAX),
        7,
    ),
    "several values read in a step": ("read_back", loop(download(ms=0.5, line=7, times=8)), 7),
    "cpu() and numpy() on one line": (
        "read_back",
        loop(download("Tensor.cpu", 4, line=7), download("Tensor.numpy", 0.01, line=7, device="cpu")),
        7,
    ),
    "a large result checked on the host": (
        "host_check",
        loop(download("Tensor.numpy", 5, line=8, nbytes=64 * MiB)),
        8,
    ),
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
    "arrays given to fit": (
        "input_bound",
        loop(batch("Model.fit", 3, line=9, loader="arrays"), frameworks=TENSORFLOW),
        9,
    ),
    "rows loaded by the loop": (
        "made_in_loop",
        loop(prepare("row", 4, line=9), upload("tf.constant", 0.1, line=10), run(line=11), frameworks=TENSORFLOW),
        10,
    ),
    "a checkpoint in every step": (
        "host",
        sampled(loop(frameworks=TORCH), (14, "torch.serialization.save", 6), (15, "torch._tensor.Tensor.backward", 4)),
        14,
    ),
    "a checkpoint every 20 steps": ("pauses", monitored(loop(frameworks=TORCH), with_pauses(400, 20, 200)), 3),
    "a checkpoint every 20 steps, on a busy machine": (
        "pauses",
        monitored(loop(frameworks=TORCH), noisy(with_pauses(800, 20, 200))),
        3,
    ),
    "a checkpoint that also recorded steps contain": (
        "pauses",
        monitored(
            sampled(loop(frameworks=TORCH), (4, "torch.serialization.save", 5), (15, "", 5)), with_pauses(400, 20, 200)
        ),
        3,
    ),
    "a checkpoint of each better model": (
        "pauses",
        monitored(loop(frameworks=TORCH), at_random(800, 0.05, 200)),
        3,
    ),
    "an evaluation every 50 steps": (
        "pauses",
        monitored(
            loop(frameworks=TENSORFLOW),
            with_pauses(800, 50, 200, frame=4),
            frames=calling("keras.src.backend.tensorflow.trainer.TensorFlowTrainer.evaluate"),
        ),
        3,
    ),
    "a plot every 30 steps": (
        "pauses",
        monitored(
            loop(download("float(array)", 0.01, device="cpu:0"), frameworks=JAX),
            with_pauses(800, 30, 100, frame=4),
            frames=calling("matplotlib.figure.Figure.savefig"),
        ),
        3,
    ),
    "a long step every 40 steps without samples": (
        "pauses",
        monitored(loop(frameworks=TORCH), with_pauses(800, 40, 200), sample_seconds=1e6),
        None,
    ),
    "a list that becomes longer": ("drift", monitored(loop(frameworks=TORCH), growing(800, 5, 30)), 2),
    "a list that becomes longer, on a busy machine": (
        "drift",
        monitored(loop(frameworks=TORCH), noisy(growing(1_000, 5, 30))),
        2,
    ),
    "a sum over a list that recorded steps contain": (
        "drift",
        monitored(
            sampled(loop(frameworks=TORCH), (2, "builtins.sum", 5), (15, "", 5)),
            growing(800, 5, 30, frame=2),
        ),
        2,
    ),
    "a wait in every step": ("host", sampled(loop(run(ms=5)), (14, "time.sleep", 2), (15, "", 3)), 14),
    "garbage collected in every step": ("host", sampled(loop(frameworks=JAX), (14, "gc.collect", 3), (15, "", 7)), 14),
    "prints in every step": ("host", sampled(loop(frameworks=TORCH), (14, "builtins.print", 1), (15, "", 9)), 14),
    "NumPy work on one line": ("host", sampled(loop(frameworks=TORCH), (14, "numpy.sort", 4), (15, "", 6)), 14),
    "Python code on one line": ("host", sampled(loop(frameworks=TORCH), (14, "Python", 6), (15, "torch.mm", 4)), 14),
    "rows mapped one at a time": (
        "input_bound",
        loop(batch("tf.data", 5, line=9, prefetch=1, mapped_at=10), frameworks=TENSORFLOW),
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
        loop(
            batch("tf.data", 4, line=9, prefetch=False, batch_rows=100, row_map=10),
            frameworks=TENSORFLOW,
            facts={"busy_cores": 7.9},
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
        loop(
            batch(ms=0.1, line=9, workers=4, pinned=False), upload("Tensor.to", 4, line=12, nbytes=32 * MiB, **ON_GPU)
        ),
        12,
    ),
    "non_blocking out of pageable memory": (
        "loader",
        loop(upload("Tensor.to", 4, line=12, nbytes=32 * MiB, non_blocking=True, **ON_GPU)),
        12,
    ),
    "predict in the loop, which compiles its pipeline": (
        "rebuilt",
        loop(
            build("Model.predict", 1, line=16, what="iterator"),
            compile_("tf.function", 3, line=16, function="Dataset_map_permutation", reason="first"),
            frameworks=TENSORFLOW,
        ),
        16,
    ),
    "a pipeline with a map in each step": (
        "rebuilt",
        loop(
            build("Dataset.from_tensor_slices", 1, line=16, what="Dataset"),
            compile_("tf.function", 3, line=17, function="Dataset_map_prepare", reason="first"),
            frameworks=TENSORFLOW,
        ),
        16,
    ),
    "short steps of fit on the CPU": (
        "keras_steps",
        fitted(run(ms=1.2, line=21).containing(batch("keras arrays", 0.05, line=21, loader="arrays", batch_rows=64))),
        STEP_LINE,
    ),
    "an eager step": ("eager", loop(ops(120, 8, line=13), ops(110, 1, line=14), frameworks=TENSORFLOW), 13),
    "few operations at a time, sometimes delayed by other processes": (
        "eager",
        loop(
            ops(40, 2, line=13, calling_seconds=2e-3),
            ops(40, 30, line=13, calling_seconds=2e-3),
            marked=False,
            frameworks=TENSORFLOW,
        ),
        13,
    ),
    "a gradient of few operations, traced in every step": (
        "eager",
        loop(transform(ms=9, line=13).containing(ops(6, 1, line=14, calling_seconds=1e-4)), frameworks=JAX),
        13,
    ),
    "operations of JAX beside a compiled call": (
        "eager",
        loop(
            run("jax.jit", 1, line=16, function="step"),
            ops(6, 4, api="jax operations", line=13, calling_seconds=3e-3),
            frameworks=JAX,
        ),
        13,
    ),
    "modules that each call takes apart": (
        "nnx_modules",
        sampled(loop(run("jax.jit", 2, line=14), frameworks=JAX), (14, NNX_CALL, 7), (14, "", 1)),
        14,
    ),
    "a Python loop of tiny operations": ("tiny_ops", loop(ops(900, 9, line=15, tiny=890), frameworks=TENSORFLOW), 15),
    "tiny operations beside a compiled call": (
        "tiny_ops",
        loop(run(ms=1, line=16), ops(400, 8, line=15, tiny=400), frameworks=TENSORFLOW),
        15,
    ),
    "shapes that keep changing": (
        "retracing",
        loop(compile_(ms=6, line=17, function="step", reason="shape"), run(line=17), frameworks=TENSORFLOW),
        17,
    ),
    "a value compiled as a constant, every fifth step": (
        "retracing",
        loop(compile_("jax.jit", 300, line=17, every=5, function="step", reason="value"), frameworks=JAX),
        17,
    ),
    "a session in every step": (
        "rebuilt",
        loop(build("tf.Session", 5, line=18, what="Session"), frameworks=TENSORFLOW),
        18,
    ),
    "a loader in every step": ("rebuilt", loop(build(ms=1, line=18), batch(ms=6, line=19, workers=2)), 18),
    "a loader and its iterator in every step": (
        "rebuilt",
        loop(
            build("DataLoader(...)", 1, line=18, what="DataLoader"),
            build("iter(DataLoader)", 3, line=19, what="iterator"),
            batch(ms=2, line=19, workers=2),
        ),
        18,
    ),
    "an iterator in every step": (
        "rebuilt",
        loop(build("iter(DataLoader)", 3, line=19, what="iterator"), batch(ms=2, line=19, workers=2)),
        19,
    ),
    "a call of fit for every part of the data": (
        "rebuilt",
        loop(
            build("Model.fit", 3, line=19, what="iterator", fit=lambda number: number),
            batch(ms=2),
            frameworks=TENSORFLOW,
        ),
        19,
    ),
    "a function jitted in every step": (
        "rebuilt",
        loop(
            build("jax.jit", 0.01, line=18, what="function"),
            compile_("jax.jit", 8, line=19, reason="first"),
            frameworks=JAX,
        ),
        18,
    ),
    "a hundred small uploads": ("many_small_copies", loop(upload(ms=0.05, line=20, times=100, nbytes=4 * KiB)), 20),
    "doubles that arrive as floats": (
        "wide_dtype",
        loop(upload("jax.device_put", 6, line=21, from_dtype="float64", dtype="float32"), frameworks=JAX),
        21,
    ),
    "doubles that stay doubles": ("wide_dtype", loop(upload(ms=6, line=21, dtype="torch.float64")), 21),
    "an operation on the other device": ("placement", loop(move(ms=3, line=22), frameworks=TENSORFLOW_GPU), 22),
    "an epoch uploaded again": (
        "fits_on_device",
        loop(upload("Tensor.to", 4, line=23, key=keys_in_turn(25), **ON_GPU), frameworks=LARGE_GPU),
        23,
    ),
    "a dataset uploaded again, shuffled": (
        "fits_on_device",
        loop(upload("Tensor.to", 4, line=23, **ON_GPU), before=[build(nbytes=10 * MiB)], frameworks=LARGE_GPU),
        23,
    ),
    "more threads than cores": (
        "threads",
        loop(batch(ms=5, line=24, workers=8), facts={"settings": {"OMP_NUM_THREADS": "8"}}),
        24,
    ),
    "launches that block the host": ("threads", loop(facts={"settings": {"CUDA_LAUNCH_BLOCKING": "1"}}), None),
    "functions that run eagerly": (
        "settings",
        loop(ops(300, 9, line=25), frameworks={"tensorflow": {"gpus": 0, "run_eagerly": True}}),
        25,
    ),
    "a model that runs eagerly": (
        "settings",
        with_setting(loop(ops(300, 9, line=25), frameworks=TENSORFLOW), "Model.compile(run_eagerly=True)", 30),
        30,
    ),
    "jit switched off": ("settings", loop(frameworks={"jax": {"gpus": 0, "jit_disabled": True}}), None),
    "a row at a time": (
        "small_batch",
        loop(batch(ms=0.02, line=26, batch_rows=1, nbytes=400, workers=0), ms=1, frameworks=TORCH),
        26,
    ),
    "a few numbers at a time, on a GPU": ("small_batch", loop(upload(ms=0.01, line=26, nbytes=2 * KiB), ms=1), 26),
    "a print in a jitted function": (
        "settings",
        loop(callback(ms=4, line=30), run("jax.jit", 9), frameworks=JAX),
        30,
    ),
    "a Python function in a compiled function": (
        "settings",
        loop(run(ms=9).containing(py_function(ms=4, line=30)), frameworks=TENSORFLOW),
        30,
    ),
    "anomaly mode whose stacks were sampled": (
        "settings",
        with_setting(
            sampled(loop(frameworks=TORCH), (14, "torch.fx.traceback.format_stack", 6), (15, "torch.mm", 4)),
            "torch.autograd.set_detect_anomaly",
            30,
        ),
        30,
    ),
    "an explicit wait": ("sync", loop(sync(ms=4, line=27)), 27),
    "a wait for every array, JAX on the CPU": (
        "sync",
        loop(sync("jax.block_until_ready", 4, line=27), frameworks=JAX),
        27,
    ),
} | DEVICE_FAULTS

# These cost memory and no time, or an unknown time, so the rule reports a finding of zero seconds.
WARNINGS = {
    "anomaly mode": ("settings", with_setting(loop(frameworks=TORCH), "torch.autograd.set_detect_anomaly", 30), 30),
    "a print that takes little time": (
        "settings",
        loop(callback(ms=0.1, line=30), run("jax.jit", 9), frameworks=JAX),
        30,
    ),
    "a print in a compiled function": ("graph_breaks", with_graph_breaks(10, 12), 10),
    "a coverage tool": ("settings", with_setting(loop(frameworks=TORCH), "sys.settrace", -1), None),
    "a profiler of every call": ("settings", with_setting(loop(frameworks=TORCH), "sys.setprofile", -1), None),
    "device memory in small pieces": ("allocator", with_pieces(30), None),
    "results checked for NaN": ("settings", with_setting(loop(frameworks=JAX), "jax_debug_nans", 30), 30),
    "a setting of the environment": ("settings", with_setting(loop(frameworks=JAX), "jax_debug_nans", -1), None),
    "deterministic convolutions": ("settings", with_setting(loop(), "torch.backends.cudnn.deterministic", 30), 30),
    "a profiler that is never stopped": (
        "settings",
        with_setting(loop(frameworks=TENSORFLOW), "tf.profiler.experimental", 30, steps=30),
        30,
    ),
    "memory blocks of Python that are checked": ("settings", loop(facts={"settings": {"PYTHONMALLOC": "debug"}}), None),
    "collectives that are logged": (
        "settings",
        loop(facts={"settings": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}}),
        None,
    ),
    "a shuffle buffer of all memory": (
        "loader",
        loop(batch("tf.data", 0.1, batch_rows=4, nbytes=4 * MiB), before=[build(line=28, shuffle_rows=20_000)] * 2),
        28,
    ),
    "a table in the graph": (
        "constants",
        loop(before=[compile_(line=29, constants_nbytes=300 * MiB)], frameworks=TENSORFLOW),
        29,
    ),
    "a full device": (
        "out_of_memory",
        loop(frameworks={"torch": {"gpus": 1, "peak_nbytes": 39 * GiB, "total_nbytes": 40 * GiB}}),
        None,
    ),
    "a full host": ("out_of_memory", loop(facts={"peak_nbytes": 31 * GiB}), None),
}
