"""Captures for the rules about debug settings, environment variables, threads and memory."""

from tests.doctor.captures import (
    JAX,
    TORCH,
    GiB,
    batch,
    callback,
    jax_loop,
    loop,
    ops,
    py_function,
    run,
    sampled,
    tensorflow_loop,
    torch_loop,
    with_pieces,
    with_setting,
)

__all__ = ["FAULTS", "WARNINGS", "NEAR_MISSES"]


def with_variables(*happenings, frameworks=None, **variables):
    """Return a loop in a process with these environment variables."""
    return loop(*happenings, frameworks=frameworks, facts={"settings": variables})


FAULTS = {
    "functions that run eagerly": (
        "settings",
        loop(ops(300, 9, line=25), frameworks={"tensorflow": {"gpus": 0, "run_eagerly": True}}),
        25,
    ),
    "a model that runs eagerly": (
        "settings",
        with_setting(tensorflow_loop(ops(300, 9, line=25)), "Model.compile(run_eagerly=True)", 30),
        30,
    ),
    "jit switched off": ("settings", loop(frameworks={"jax": {"gpus": 0, "jit_disabled": True}}), None),
    "a print in a jitted function": ("settings", jax_loop(callback(ms=4, line=30), run("jax.jit", 9)), 30),
    "a Python function in a compiled function": (
        "settings",
        tensorflow_loop(run(ms=9).containing(py_function(ms=4, line=30))),
        30,
    ),
    "anomaly mode whose stacks were sampled": (
        "settings",
        with_setting(
            sampled(torch_loop(), (14, "torch.fx.traceback.format_stack", 6), (15, "torch.mm", 4)),
            "torch.autograd.set_detect_anomaly",
            30,
        ),
        30,
    ),
    "more threads than cores": ("threads", with_variables(batch(ms=5, line=24, workers=8), OMP_NUM_THREADS="8"), 24),
    "launches that block the host": ("threads", with_variables(CUDA_LAUNCH_BLOCKING="1"), None),
}

WARNINGS = {
    "anomaly mode": ("settings", with_setting(torch_loop(), "torch.autograd.set_detect_anomaly", 30), 30),
    "a print that takes little time": ("settings", jax_loop(callback(ms=0.1, line=30), run("jax.jit", 9)), 30),
    "a coverage tool": ("settings", with_setting(torch_loop(), "sys.settrace", -1), None),
    "a profiler of every call": ("settings", with_setting(torch_loop(), "sys.setprofile", -1), None),
    "results checked for NaN": ("settings", with_setting(jax_loop(), "jax_debug_nans", 30), 30),
    "a setting of the environment": ("settings", with_setting(jax_loop(), "jax_debug_nans", -1), None),
    "deterministic convolutions": ("settings", with_setting(loop(), "torch.backends.cudnn.deterministic", 30), 30),
    "a profiler that is never stopped": (
        "settings",
        with_setting(tensorflow_loop(), "tf.profiler.experimental", 30, steps=30),
        30,
    ),
    "memory blocks of Python that are checked": ("settings", with_variables(PYTHONMALLOC="debug"), None),
    "collectives that are logged": ("settings", with_variables(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,COLL"), None),
    "device memory in small pieces": ("allocator", with_pieces(30), None),
    "a full device": (
        "out_of_memory",
        loop(frameworks={"torch": {"gpus": 1, "peak_nbytes": 39 * GiB, "total_nbytes": 40 * GiB}}),
        None,
    ),
    "a full host": ("out_of_memory", loop(facts={"peak_nbytes": 31 * GiB}), None),
}

NEAR_MISSES = {
    "a profiler of few steps": ("settings", with_setting(loop(), "torch.profiler", 30, steps=5)),
    "deterministic convolutions without a GPU": (
        "settings",
        with_setting(torch_loop(), "torch.backends.cudnn.deterministic", 30),
    ),
    "a setting that a later version records": ("settings", with_setting(loop(), "torch.slow_mode", 30)),
    "a setting without steps": ("settings", with_setting(torch_loop(steps=2), "jax_debug_nans", 30)),
    "a print in few steps": ("settings", jax_loop(callback(ms=4, every=10), run("jax.jit", 9))),
    "a callback that takes little time": ("settings", jax_loop(callback("jax.pure_callback", 0.1), run("jax.jit", 9))),
    "a Python function of tf.data": (
        "settings",
        tensorflow_loop(batch("tf.data", 5).containing(py_function(ms=4.9)), run(ms=1)),
    ),
    "variables that act only at the start": (
        "settings",
        with_variables(NCCL_DEBUG="INFO", XLA_FLAGS="--xla_dump_to=/tmp/hlo", PYTHONDEVMODE="0"),
    ),
    "a variable of another framework": (
        "settings",
        with_variables(TF_CPP_MAX_VLOG_LEVEL="2", TORCH_DISTRIBUTED_DEBUG="DETAIL", frameworks=JAX),
    ),
    "a coverage tool that ended early": ("settings", with_setting(torch_loop(), "sys.settrace", -1, steps=3)),
    "a thread for each worker": ("threads", with_variables(batch(ms=5, workers=8), OMP_NUM_THREADS="1")),
    "many threads without a wait": ("threads", with_variables(batch(ms=0.1, workers=8), OMP_NUM_THREADS="8")),
    "a setting for GPUs on a machine without one": (
        "threads",
        with_variables(CUDA_LAUNCH_BLOCKING="1", frameworks=TORCH),
    ),
    "a setting that is no number": ("threads", with_variables(batch(ms=5, workers=4), OMP_NUM_THREADS="all")),
    "few pieces of device memory": ("allocator", with_pieces(10)),
    "pieces on a device with much room": ("allocator", with_pieces(30, total=400)),
    "segments that grow": ("allocator", with_pieces(30, settings={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})),
    "a process that uses half of the memory": ("out_of_memory", loop(facts={"peak_nbytes": 16 * GiB})),
    "a memory of unknown size": (
        "out_of_memory",
        loop(frameworks={"tensorflow": {"gpus": 1, "peak_nbytes": 90 * GiB}}, machine={"memory_nbytes": 0}),
    ),
}
