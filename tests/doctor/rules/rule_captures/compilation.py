"""Captures for the rules about eager operations, and about what a loop compiles or builds again."""

from tests.doctor.captures import (
    NNX_CALL,
    STEP_LINE,
    MiB,
    batch,
    build,
    compile_,
    fitted,
    jax_loop,
    loop,
    ops,
    run,
    sampled,
    script,
    tensorflow_loop,
    transform,
    with_graph_breaks,
)

__all__ = ["FAULTS", "WARNINGS", "NEAR_MISSES"]

FAULTS = {
    "an eager step": ("eager", tensorflow_loop(ops(120, 8, line=13), ops(110, 1, line=14)), 13),
    "few operations at a time, sometimes delayed by other processes": (
        "eager",
        tensorflow_loop(
            ops(40, 2, line=13, calling_seconds=2e-3), ops(40, 30, line=13, calling_seconds=2e-3), marked=False
        ),
        13,
    ),
    "a gradient of few operations, traced in every step": (
        "eager",
        jax_loop(transform(ms=9, line=13).containing(ops(6, 1, line=14, calling_seconds=1e-4))),
        13,
    ),
    "operations of JAX beside a compiled call": (
        "eager",
        jax_loop(
            run("jax.jit", 1, line=16, function="step"), ops(6, 4, api="jax operations", line=13, calling_seconds=3e-3)
        ),
        13,
    ),
    "a Python loop of tiny operations": ("tiny_ops", tensorflow_loop(ops(900, 9, line=15, tiny=890)), 15),
    "tiny operations beside a compiled call": (
        "tiny_ops",
        tensorflow_loop(run(ms=1, line=16), ops(400, 8, line=15, tiny=400)),
        15,
    ),
    "modules that each call takes apart": (
        "nnx_modules",
        sampled(jax_loop(run("jax.jit", 2, line=14)), (14, NNX_CALL, 7), (14, "", 1)),
        14,
    ),
    "short steps of fit on the CPU": (
        "keras_steps",
        fitted(run(ms=1.2, line=21).containing(batch("keras arrays", 0.05, line=21, loader="arrays", batch_rows=64))),
        STEP_LINE,
    ),
    "shapes that keep changing": (
        "retracing",
        tensorflow_loop(compile_(ms=6, line=17, function="step", reason="shape"), run(line=17)),
        17,
    ),
    "a value compiled as a constant, every fifth step": (
        "retracing",
        jax_loop(compile_("jax.jit", 300, line=17, every=5, function="step", reason="value")),
        17,
    ),
    "predict in the loop, which compiles its pipeline": (
        "rebuilt",
        tensorflow_loop(
            build("Model.predict", 1, line=16, what="iterator"),
            compile_("tf.function", 3, line=16, function="Dataset_map_permutation", reason="first"),
        ),
        16,
    ),
    "a pipeline with a map in each step": (
        "rebuilt",
        tensorflow_loop(
            build("Dataset.from_tensor_slices", 1, line=16, what="Dataset"),
            compile_("tf.function", 3, line=17, function="Dataset_map_prepare", reason="first"),
        ),
        16,
    ),
    "a session in every step": ("rebuilt", tensorflow_loop(build("tf.Session", 5, line=18, what="Session")), 18),
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
        tensorflow_loop(build("Model.fit", 3, line=19, what="iterator", fit=lambda number: number), batch(ms=2)),
        19,
    ),
    "predict and fit in every step": (
        "rebuilt",
        tensorflow_loop(
            build("Model.predict", 2, line=18, what="iterator"),
            build("Model.fit", 3, line=19, what="iterator", fit=lambda number: number),
        ),
        19,
    ),
    "a function jitted in every step": (
        "rebuilt",
        jax_loop(build("jax.jit", 0.01, line=18, what="function"), compile_("jax.jit", 8, line=19, reason="first")),
        18,
    ),
}

WARNINGS = {
    "a print in a compiled function": ("graph_breaks", with_graph_breaks(10, 12), 10),
    "a table in the graph": ("constants", tensorflow_loop(before=[compile_(line=29, constants_nbytes=300 * MiB)]), 29),
}

NEAR_MISSES = {
    "a compiled step": ("eager", tensorflow_loop(run(ms=8), ops(60, 0.5))),
    "two operations of JAX beside a compiled call": (
        "eager",
        jax_loop(run("jax.jit", 1), ops(2, 4, api="jax operations", calling_seconds=3e-3)),
    ),
    "quick operations of JAX beside a long compiled call": (
        "eager",
        jax_loop(run("jax.jit", 9), ops(6, 0.1, api="jax operations", calling_seconds=1e-4)),
    ),
    "few operations": ("eager", tensorflow_loop(ops(30, 5))),
    "a gradient of few operations, most of them computing": (
        "eager",
        jax_loop(transform(ms=9).containing(ops(6, 8, calling_seconds=1e-4))),
    ),
    "few operations at a time, and long ones": (
        "eager",
        tensorflow_loop(ops(40, 30, calling_seconds=5e-3), steps=100, marked=False),
    ),
    "operations that are long": ("eager", tensorflow_loop(ops(60, 90), ms=100)),
    "a loop of operations": ("eager", tensorflow_loop(ops(900, 9, tiny=890))),
    "operations that are large": ("tiny_ops", tensorflow_loop(ops(900, 9, tiny=10))),
    "operations of unknown length": ("tiny_ops", tensorflow_loop(ops(900, 9))),
    "few tiny operations": ("tiny_ops", tensorflow_loop(run(ms=5), ops(20, 1, tiny=20))),
    "modules that a call takes apart quickly": (
        "nnx_modules",
        sampled(jax_loop(run("jax.jit", 2, line=14)), (14, NNX_CALL, 0.5), (15, "numpy.sort", 7.5)),
    ),
    "modules that are taken apart before the loop": (
        "nnx_modules",
        sampled(
            jax_loop(
                run("jax.jit", 2, line=14),
                facts=script("cached = nnx.cached_partial(step, model)", "for x in xs:", "    cached(x)", first=12),
            ),
            (14, NNX_CALL, 8),
        ),
    ),
    "fit with 50 steps per call": ("keras_steps", fitted(run(ms=1.2), steps_per_execution=50)),
    "fit on JAX": ("keras_steps", fitted(run(ms=1.2), backend="jax")),
    "fit that computes for most of a step": ("keras_steps", fitted(run(ms=1.95))),
    "long steps of fit": ("keras_steps", fitted(run(ms=8), ms=12)),
    "fit with a small batch": (
        "keras_steps",
        fitted(run(ms=1.2).containing(batch("keras arrays", 0.05, loader="arrays", batch_rows=1, nbytes=80))),
    ),
    "the last batch of an epoch": ("retracing", tensorflow_loop(compile_(ms=60, every=40, reason="shape"))),
    "a compilation before the loop": ("retracing", tensorflow_loop(run(ms=5), before=[compile_(ms=900)] * 5)),
    "compilations of a new function each time": (
        "retracing",
        jax_loop(build("jax.jit", 0.01, what="function"), compile_("jax.jit", 8)),
    ),
    "many functions, each compiled once": (
        "retracing",
        tensorflow_loop(compile_(ms=5, function=lambda number: f"f{number}", reason="first")),
    ),
    "an iterator for each epoch of one fit": (
        "rebuilt",
        tensorflow_loop(build("Model.fit", 5, what="iterator", fit=1, every=5), batch(ms=1)),
    ),
    "many functions, each made once": (
        "rebuilt",
        tensorflow_loop(build("tf.function", 5, what="function", function=lambda number: f"f{number}")),
    ),
    "an iterator for each epoch": (
        "rebuilt",
        loop(build("iter(DataLoader)", 1, what="iterator", every=25), batch(ms=1)),
    ),
    "a loader for each epoch": ("rebuilt", loop(build(ms=1, every=25), batch(ms=1))),
    "everything made before the loop": ("rebuilt", loop(batch(ms=1), before=[build()] * 5)),
    "a compiled function in one graph": ("graph_breaks", with_graph_breaks()),
    "breaks in a function that the loop does not call": ("graph_breaks", with_graph_breaks(10, is_called=False)),
    "a table that is small": ("constants", tensorflow_loop(before=[compile_(constants_nbytes=MiB)])),
}
