"""Healthy captures that look like a fault: the rule that must report nothing, and the capture."""

from tests.doctor.captures import (
    JAX,
    NNX_CALL,
    OTHER,
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
    script,
    sync,
    transform,
    upload,
    with_graph_breaks,
    with_pieces,
    with_setting,
)
from tests.doctor.histories import at_random, calling, growing, monitored, noisy, usual, with_pauses
from tests.doctor.rules.device_faults import DEVICE_NEAR_MISSES

__all__ = ["HEALTHY", "NEAR_MISSES"]

ON_GPU = {"device": "cuda:0", "pinned": False}
SMALL_GPU = {"torch": {"gpus": 1, "free_nbytes": 8 * MiB}}
LARGE_GPU = {"torch": {"gpus": 1, "free_nbytes": 40 * GiB}}

NEAR_MISSES = {
    "a conversion right after the step": ("made_in_loop", loop(upload(ms=0.1), run(ms=9), frameworks=TENSORFLOW)),
    "work of PyTorch between two uploads": (
        "made_in_loop",
        loop(upload(ms=0.1), prepare(ms=4), upload("torch.zeros", 0.1), frameworks=TORCH),
    ),
    "rows made while an unrecorded GPU may compute": (
        "made_in_loop",
        loop(prepare("row", 4), upload("tf.constant", 0.1), run(), frameworks=TENSORFLOW_GPU),
    ),
    "operations between a step and the next upload": (
        "made_in_loop",
        loop(ops(100, 5), upload("tf.constant", 0.1), frameworks=TENSORFLOW),
    ),
    "a checkpoint that takes little of the run": (
        "pauses",
        monitored(loop(frameworks=TORCH), with_pauses(2_000, 400, 150)),
    ),
    "an evaluation that takes little of the run": (
        "pauses",
        monitored(
            loop(frameworks=TENSORFLOW),
            with_pauses(2_000, 400, 300, frame=4),
            frames=calling("keras.src.backend.tensorflow.trainer.TensorFlowTrainer.evaluate"),
        ),
    ),
    "a machine that is busy now and then": (
        "pauses",
        monitored(loop(frameworks=TORCH), noisy([usual()] * 800, 0.5)),
    ),
    "an unknown line that is slow now and then": (
        "pauses",
        monitored(loop(frameworks=TORCH), at_random(800, 0.05, 200, frame=3)),
    ),
    "a wait for a GPU every 50 steps": (
        "pauses",
        monitored(loop(), with_pauses(800, 50, 200, frame=4), frames=calling("torch._tensor.Tensor.item")),
    ),
    "a checkpoint that waits for queued steps": ("pauses", monitored(loop(frameworks=JAX), with_pauses(800, 50, 400))),
    "long first steps": ("pauses", monitored(loop(frameworks=TORCH), [*[usual(300)] * 6, *[usual()] * 500])),
    "too few steps": ("pauses", monitored(loop(frameworks=TORCH), with_pauses(30, 20, 200))),
    "no history of steps": ("pauses", loop(frameworks=TORCH)),
    "steps of random length": ("drift", monitored(loop(frameworks=TORCH), noisy([usual()] * 800, 0.5))),
    "longer steps in the second half of the run": (
        "drift",
        monitored(loop(frameworks=TORCH), [*[usual()] * 400, *[usual(30)] * 400]),
    ),
    "shorter steps after a warm-up": (
        "drift",
        monitored(loop(frameworks=TORCH), [*[usual(30)] * 100, *[usual()] * 600]),
    ),
    "a machine that becomes slower": (
        "drift",
        monitored(loop(frameworks=TORCH), noisy([usual(10 + step / 50) for step in range(1_000)], 0.05)),
    ),
    "epochs that begin with short rows": (
        "drift",
        monitored(loop(frameworks=TORCH), [usual(10 + step % 250 / 10) for step in range(1_000)]),
    ),
    "growth without samples": ("drift", monitored(loop(frameworks=TORCH), growing(800, 5, 30), sample_seconds=1e6)),
    "a checkpoint that takes little time": (
        "host",
        sampled(loop(frameworks=TORCH), (14, "torch.serialization.save", 0.3), (15, "", 9.7)),
    ),
    "a line of the framework": (
        "host",
        sampled(loop(frameworks=TORCH), (14, "torch._tensor.Tensor.backward", 9), (15, "", 1)),
    ),
    "a call without a name": ("host", sampled(loop(frameworks=TORCH), (14, "", 10))),
    "Python code on many lines": (
        "host",
        sampled(loop(frameworks=TORCH), *((line, "Python", 2) for line in range(5))),
    ),
    "a wait on another thread": ("host", sampled(loop(frameworks=TORCH), (14, "time.sleep", 10), thread=OTHER)),
    "too few samples": ("host", sampled(loop(steps=10, frameworks=TORCH), (14, "time.sleep", 10))),
    "a wait inside a recorded call": ("host", sampled(loop(run(ms=10), frameworks=TORCH), (14, "time.sleep", 10))),
    "fresh data every step": ("repeated_upload", loop(upload(ms=6))),
    "the same number every step": ("repeated_upload", loop(upload(ms=6, key=same, nbytes=8))),
    "the same array twice in the whole run": ("repeated_upload", loop(upload(ms=6, key=same, every=30))),
    "the same array on another thread": ("repeated_upload", loop(upload(ms=6, key=same, thread=OTHER))),
    "data with an unknown key": ("repeated_upload", loop(upload(ms=6, key=""))),
    "a conversion that takes no time": ("conversion_in_loop", loop(upload("torch.from_numpy", 0.01))),
    "a conversion now and then": ("conversion_in_loop", loop(upload(ms=6, every=10))),
    "a tensor that shares the memory of an array": (
        "conversion_in_loop",
        loop(upload("torch.from_numpy", 2, nbytes=0, copied=False)),
    ),
    "a copy that does not block": ("conversion_in_loop", loop(upload("Tensor.to", 2, pinned=True, non_blocking=True))),
    "the same array, converted": ("conversion_in_loop", loop(upload(ms=6, key=same))),
    "page-locked memory": ("pageable_upload", loop(upload("Tensor.to", 4, device="cuda:0", pinned=True))),
    "a small copy": ("pageable_upload", loop(upload("Tensor.to", 4, nbytes=512 * KiB, **ON_GPU))),
    "a copy that stays on the host": ("pageable_upload", loop(upload(ms=4, device="cpu", pinned=False))),
    "a copy from an unknown kind of memory": ("pageable_upload", loop(upload("Tensor.to", 4, device="cuda:0"))),
    "a table that an operation moves to the GPU": ("pageable_upload", loop(move(source="CPU:0", target="GPU:0"))),
    "an item on the CPU": ("read_back", loop(download(ms=4, device="cpu"), frameworks=TORCH)),
    "a loss read every hundredth step": ("read_back", loop(download(ms=4, every=20))),
    "a value read on another thread": ("read_back", loop(download(ms=4, thread=OTHER))),
    "a large result": ("read_back", loop(download(ms=4, nbytes=64 * MiB))),
    "numpy() of a large tensor on the CPU": (
        "host_check",
        loop(download("Tensor.numpy", 4, nbytes=64 * MiB, device="CPU:0"), frameworks=TENSORFLOW),
    ),
    "a large result at the end of an epoch": ("host_check", loop(download(ms=4, nbytes=64 * MiB, every=25))),
    "a single number": ("host_check", loop(download(ms=4))),
    "a short wait for input": ("input_bound", loop(batch(ms=0.4, workers=4))),
    "a slow producer on another thread": ("input_bound", loop(prepare("map", 9, thread=OTHER), batch(ms=0.1))),
    "a loader without workers": (
        "input_bound",
        loop(batch(ms=5, workers=0).containing(prepare("row", 4.9))),
    ),
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
    "fit with 50 steps per call": ("keras_steps", fitted(run(ms=1.2), steps_per_execution=50)),
    "fit on JAX": ("keras_steps", fitted(run(ms=1.2), backend="jax")),
    "fit that computes for most of a step": ("keras_steps", fitted(run(ms=1.95))),
    "long steps of fit": ("keras_steps", fitted(run(ms=8), ms=12)),
    "fit with a small batch": (
        "keras_steps",
        fitted(run(ms=1.2).containing(batch("keras arrays", 0.05, loader="arrays", batch_rows=1, nbytes=80))),
    ),
    "a compiled step": ("eager", loop(run(ms=8), ops(60, 0.5), frameworks=TENSORFLOW)),
    "two operations of JAX beside a compiled call": (
        "eager",
        loop(run("jax.jit", 1), ops(2, 4, api="jax operations", calling_seconds=3e-3), frameworks=JAX),
    ),
    "quick operations of JAX beside a long compiled call": (
        "eager",
        loop(run("jax.jit", 9), ops(6, 0.1, api="jax operations", calling_seconds=1e-4), frameworks=JAX),
    ),
    "modules that a call takes apart quickly": (
        "nnx_modules",
        sampled(loop(run("jax.jit", 2, line=14), frameworks=JAX), (14, NNX_CALL, 0.5), (15, "numpy.sort", 7.5)),
    ),
    "modules that are taken apart before the loop": (
        "nnx_modules",
        sampled(
            loop(
                run("jax.jit", 2, line=14),
                frameworks=JAX,
                facts=script("cached = nnx.cached_partial(step, model)", "for x in xs:", "    cached(x)", first=12),
            ),
            (14, NNX_CALL, 8),
        ),
    ),
    "an observation that follows from an action": (
        "conversion_in_loop",
        loop(
            upload("jnp.array", 4, line=13, from_dtype="list"),
            download("int(array)", 1, line=14, device="cpu:0"),
            frameworks=JAX,
            facts=script(
                "while True:",
                "    p = policy(params, jnp.array(seen))",
                "    action = int(choose(p))",
                "    result, reward = env.step(action)",
                "    seen = result",
                first=12,
            ),
        ),
    ),
    "few operations": ("eager", loop(ops(30, 5), frameworks=TENSORFLOW)),
    "a gradient of few operations, most of them computing": (
        "eager",
        loop(transform(ms=9).containing(ops(6, 8, calling_seconds=1e-4)), frameworks=JAX),
    ),
    "few operations at a time, and long ones": (
        "eager",
        loop(ops(40, 30, calling_seconds=5e-3), steps=100, marked=False, frameworks=TENSORFLOW),
    ),
    "operations that are long": ("eager", loop(ops(60, 90), ms=100, frameworks=TENSORFLOW)),
    "a loop of operations": ("eager", loop(ops(900, 9, tiny=890), frameworks=TENSORFLOW)),
    "operations that are large": ("tiny_ops", loop(ops(900, 9, tiny=10), frameworks=TENSORFLOW)),
    "operations of unknown length": ("tiny_ops", loop(ops(900, 9), frameworks=TENSORFLOW)),
    "few tiny operations": ("tiny_ops", loop(run(ms=5), ops(20, 1, tiny=20), frameworks=TENSORFLOW)),
    "the last batch of an epoch": ("retracing", loop(compile_(ms=60, every=40, reason="shape"), frameworks=TENSORFLOW)),
    "a compilation before the loop": (
        "retracing",
        loop(run(ms=5), before=[compile_(ms=900)] * 5, frameworks=TENSORFLOW),
    ),
    "compilations of a new function each time": (
        "retracing",
        loop(build("jax.jit", 0.01, what="function"), compile_("jax.jit", 8), frameworks=JAX),
    ),
    "an iterator for each epoch of one fit": (
        "rebuilt",
        loop(build("Model.fit", 5, what="iterator", fit=1, every=5), batch(ms=1), frameworks=TENSORFLOW),
    ),
    "many functions, each made once": (
        "rebuilt",
        loop(build("tf.function", 5, what="function", function=lambda number: f"f{number}"), frameworks=TENSORFLOW),
    ),
    "many functions, each compiled once": (
        "retracing",
        loop(compile_(ms=5, function=lambda number: f"f{number}", reason="first"), frameworks=TENSORFLOW),
    ),
    "what a compiled call does before it converts its arguments": (
        "made_in_loop",
        loop(run(ms=9).containing(prepare("row", 4), upload("tf.function", 0.1)), frameworks=TENSORFLOW),
    ),
    "an iterator for each epoch": (
        "rebuilt",
        loop(build("iter(DataLoader)", 1, what="iterator", every=25), batch(ms=1)),
    ),
    "a loader for each epoch": ("rebuilt", loop(build(ms=1, every=25), batch(ms=1))),
    "everything made before the loop": ("rebuilt", loop(batch(ms=1), before=[build()] * 5)),
    "few small uploads": ("many_small_copies", loop(upload(ms=0.5, times=4, nbytes=4 * KiB))),
    "many tensors that share the memory of arrays": (
        "many_small_copies",
        loop(upload(ms=0.1, times=20, nbytes=0, copied=False)),
    ),
    "many large uploads": ("many_small_copies", loop(upload(ms=0.5, times=10, nbytes=MiB))),
    "floats that stay floats": ("wide_dtype", loop(upload(ms=6, from_dtype="float32", dtype="torch.float32"))),
    "labels in int64": ("wide_dtype", loop(upload(ms=6, dtype="torch.int64"))),
    "a few doubles": ("wide_dtype", loop(upload(ms=6, dtype="float64", nbytes=800))),
    "bytes that become floats": ("wide_dtype", loop(upload(ms=6, from_dtype="uint8", dtype="float32"))),
    "a move now and then": ("placement", loop(move(ms=3, every=10))),
    "a table that is small": ("constants", loop(before=[compile_(constants_nbytes=MiB)], frameworks=TENSORFLOW)),
    "an epoch that does not fit": (
        "fits_on_device",
        loop(upload("Tensor.to", 4, key=keys_in_turn(25), **ON_GPU), frameworks=SMALL_GPU),
    ),
    "data that is never uploaded again": (
        "fits_on_device",
        loop(upload("Tensor.to", 4, **ON_GPU), frameworks=LARGE_GPU),
    ),
    "a device with unknown free memory": (
        "fits_on_device",
        loop(upload("Tensor.to", 4, key=keys_in_turn(25), **ON_GPU)),
    ),
    "an epoch on the CPU": (
        "fits_on_device",
        loop(upload(ms=4, key=keys_in_turn(25), device="cpu"), frameworks=LARGE_GPU),
    ),
    "a thread for each worker": ("threads", loop(batch(ms=5, workers=8), facts={"settings": {"OMP_NUM_THREADS": "1"}})),
    "many threads without a wait": (
        "threads",
        loop(batch(ms=0.1, workers=8), facts={"settings": {"OMP_NUM_THREADS": "8"}}),
    ),
    "a setting for GPUs on a machine without one": (
        "threads",
        loop(frameworks=TORCH, facts={"settings": {"CUDA_LAUNCH_BLOCKING": "1"}}),
    ),
    "a setting that is no number": (
        "threads",
        loop(batch(ms=5, workers=4), facts={"settings": {"OMP_NUM_THREADS": "all"}}),
    ),
    "a profiler of few steps": ("settings", with_setting(loop(), "torch.profiler", 30, steps=5)),
    "deterministic convolutions without a GPU": (
        "settings",
        with_setting(loop(frameworks=TORCH), "torch.backends.cudnn.deterministic", 30),
    ),
    "a setting that a later version records": ("settings", with_setting(loop(), "torch.slow_mode", 30)),
    "a setting without steps": ("settings", with_setting(loop(steps=2, frameworks=TORCH), "jax_debug_nans", 30)),
    "a print in few steps": ("settings", loop(callback(ms=4, every=10), run("jax.jit", 9), frameworks=JAX)),
    "a callback that takes little time": (
        "settings",
        loop(callback("jax.pure_callback", 0.1), run("jax.jit", 9), frameworks=JAX),
    ),
    "a Python function of tf.data": (
        "settings",
        loop(batch("tf.data", 5).containing(py_function(ms=4.9)), run(ms=1), frameworks=TENSORFLOW),
    ),
    "variables that act only at the start": (
        "settings",
        loop(facts={"settings": {"NCCL_DEBUG": "INFO", "XLA_FLAGS": "--xla_dump_to=/tmp/hlo", "PYTHONDEVMODE": "0"}}),
    ),
    "a variable of another framework": (
        "settings",
        loop(frameworks=JAX, facts={"settings": {"TF_CPP_MAX_VLOG_LEVEL": "2", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}),
    ),
    "a compiled function in one graph": ("graph_breaks", with_graph_breaks()),
    "breaks in a function that the loop does not call": ("graph_breaks", with_graph_breaks(10, is_called=False)),
    "a coverage tool that ended early": (
        "settings",
        with_setting(loop(frameworks=TORCH), "sys.settrace", -1, steps=3),
    ),
    "few pieces of device memory": ("allocator", with_pieces(10)),
    "pieces on a device with much room": ("allocator", with_pieces(30, total=400)),
    "segments that grow": ("allocator", with_pieces(30, settings={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})),
    "a process that uses half of the memory": ("out_of_memory", loop(facts={"peak_nbytes": 16 * GiB})),
    "a memory of unknown size": (
        "out_of_memory",
        loop(frameworks={"tensorflow": {"gpus": 1, "peak_nbytes": 90 * GiB}}, machine={"memory_nbytes": 0}),
    ),
    "a large batch": ("small_batch", loop(upload(ms=0.01, nbytes=MiB), ms=1)),
    "a small batch for a long step": ("small_batch", loop(upload(ms=0.01, nbytes=2 * KiB), ms=50)),
    "a small batch on the CPU": ("small_batch", loop(upload(ms=0.01, nbytes=2 * KiB), ms=1, frameworks=TORCH)),
    "a small batch for a compiled step": ("small_batch", loop(upload(ms=0.01, nbytes=2 * KiB), run(ms=0.8), ms=1)),
    "a small batch for an eager step": (
        "small_batch",
        loop(upload(ms=0.01, nbytes=2 * KiB), ops(90, 0.8), ms=1, frameworks=TENSORFLOW_GPU),
    ),
    "a wait at the end of an epoch": ("sync", loop(sync(ms=4, every=20))),
} | DEVICE_NEAR_MISSES

HEALTHY = {
    "nothing but computing": loop(),
    "a well-fed GPU": loop(
        batch(ms=0.05, workers=8, pinned=True, batch_rows=256, nbytes=32 * MiB),
        upload("Tensor.to", 0.05, nbytes=32 * MiB, device="cuda:0", pinned=True, non_blocking=True),
        download(ms=0.5, every=50),
        before=[build()],
    ),
    "a compiled step on tf.data": loop(
        batch("tf.data", 0.1, prefetch=True, batch_rows=256, nbytes=8 * MiB),
        run(ms=9),
        before=[build("tf.data", what="Dataset", shuffle_rows=1000), compile_(ms=900, reason="first")],
        frameworks=TENSORFLOW,
    ),
    "PyTorch on the CPU": loop(
        batch(ms=0.3, workers=0, pinned=False).containing(prepare("row", 0.2)),
        download(ms=0.01, device="cpu"),
        frameworks=TORCH,
    ),
    "JAX that reads every tenth step": loop(
        run("jax.jit", 0.1), download("float(array)", 3, every=10, device="cpu:0"), frameworks=JAX
    ),
}
