"""Captures for the rules about time that the host spends on a line: in every step, in some steps, or growing."""

from tests.doctor.captures import OTHER, download, jax_loop, loop, run, sampled, tensorflow_loop, torch_loop
from tests.doctor.histories import at_random, calling, growing, monitored, noisy, usual, with_pauses

__all__ = ["FAULTS", "NEAR_MISSES"]

EVALUATE = calling("keras.src.backend.tensorflow.trainer.TensorFlowTrainer.evaluate")

FAULTS = {
    "a checkpoint in every step": (
        "host",
        sampled(torch_loop(), (14, "torch.serialization.save", 6), (15, "torch._tensor.Tensor.backward", 4)),
        14,
    ),
    "a wait in every step": ("host", sampled(loop(run(ms=5)), (14, "time.sleep", 2), (15, "", 3)), 14),
    "garbage collected in every step": ("host", sampled(jax_loop(), (14, "gc.collect", 3), (15, "", 7)), 14),
    "a figure that several lines draw": (
        "host",
        sampled(torch_loop(), (14, "matplotlib.pyplot.plot", 2), (15, "matplotlib.pyplot.pause", 3), (16, "", 5)),
        15,
    ),
    "prints in every step": ("host", sampled(torch_loop(), (14, "builtins.print", 1), (15, "", 9)), 14),
    "NumPy work on one line": ("host", sampled(torch_loop(), (14, "numpy.sort", 4), (15, "", 6)), 14),
    "Python code on one line": ("host", sampled(torch_loop(), (14, "Python", 6), (15, "torch.mm", 4)), 14),
    "a checkpoint every 20 steps": ("pauses", monitored(torch_loop(), with_pauses(400, 20, 200)), 3),
    "a checkpoint every 20 steps, on a busy machine": (
        "pauses",
        monitored(torch_loop(), noisy(with_pauses(800, 20, 200))),
        3,
    ),
    "a checkpoint that also recorded steps contain": (
        "pauses",
        monitored(sampled(torch_loop(), (4, "torch.serialization.save", 5), (15, "", 5)), with_pauses(400, 20, 200)),
        3,
    ),
    "a checkpoint of each better model": ("pauses", monitored(torch_loop(), at_random(800, 0.05, 200)), 3),
    "an evaluation every 50 steps": (
        "pauses",
        monitored(tensorflow_loop(), with_pauses(800, 50, 200, frame=4), frames=EVALUATE),
        3,
    ),
    "a plot every 30 steps": (
        "pauses",
        monitored(
            jax_loop(download("float(array)", 0.01, device="cpu:0")),
            with_pauses(800, 30, 100, frame=4),
            frames=calling("matplotlib.figure.Figure.savefig"),
        ),
        3,
    ),
    "a long step every 40 steps without samples": (
        "pauses",
        monitored(torch_loop(), with_pauses(800, 40, 200), sample_seconds=1e6),
        None,
    ),
    "a list that becomes longer": ("drift", monitored(torch_loop(), growing(800, 5, 30)), 2),
    "a list that becomes longer, on a busy machine": (
        "drift",
        monitored(torch_loop(), noisy(growing(1_000, 5, 30))),
        2,
    ),
    "a sum over a list that recorded steps contain": (
        "drift",
        monitored(sampled(torch_loop(), (2, "builtins.sum", 5), (15, "", 5)), growing(800, 5, 30, frame=2)),
        2,
    ),
}

NEAR_MISSES = {
    "a checkpoint that takes little time": (
        "host",
        sampled(torch_loop(), (14, "torch.serialization.save", 0.3), (15, "", 9.7)),
    ),
    "a line of the framework": ("host", sampled(torch_loop(), (14, "torch._tensor.Tensor.backward", 9), (15, "", 1))),
    "a call without a name": ("host", sampled(torch_loop(), (14, "", 10))),
    "Python code on many lines": ("host", sampled(torch_loop(), *((line, "Python", 2) for line in range(5)))),
    "a wait on another thread": ("host", sampled(torch_loop(), (14, "time.sleep", 10), thread=OTHER)),
    "too few samples": ("host", sampled(torch_loop(steps=10), (14, "time.sleep", 10))),
    "a wait inside a recorded call": ("host", sampled(torch_loop(run(ms=10)), (14, "time.sleep", 10))),
    "a checkpoint that takes little of the run": ("pauses", monitored(torch_loop(), with_pauses(2_000, 400, 150))),
    "an evaluation that takes little of the run": (
        "pauses",
        monitored(tensorflow_loop(), with_pauses(2_000, 400, 300, frame=4), frames=EVALUATE),
    ),
    "a machine that is busy now and then": ("pauses", monitored(torch_loop(), noisy([usual()] * 800, 0.5))),
    "an unknown line that is slow now and then": (
        "pauses",
        monitored(torch_loop(), at_random(800, 0.05, 200, frame=3)),
    ),
    "a wait for a GPU every 50 steps": (
        "pauses",
        monitored(loop(), with_pauses(800, 50, 200, frame=4), frames=calling("torch._tensor.Tensor.item")),
    ),
    "a checkpoint that waits for queued steps": ("pauses", monitored(jax_loop(), with_pauses(800, 50, 400))),
    "long first steps": ("pauses", monitored(torch_loop(), [*[usual(300)] * 6, *[usual()] * 500])),
    "too few steps": ("pauses", monitored(torch_loop(), with_pauses(30, 20, 200))),
    "no history of steps": ("pauses", torch_loop()),
    "steps of random length": ("drift", monitored(torch_loop(), noisy([usual()] * 800, 0.5))),
    "longer steps in the second half of the run": (
        "drift",
        monitored(torch_loop(), [*[usual()] * 400, *[usual(30)] * 400]),
    ),
    "shorter steps after a warm-up": ("drift", monitored(torch_loop(), [*[usual(30)] * 100, *[usual()] * 600])),
    "a machine that becomes slower": (
        "drift",
        monitored(torch_loop(), noisy([usual(10 + step / 50) for step in range(1_000)], 0.05)),
    ),
    "epochs that begin with short rows": (
        "drift",
        monitored(torch_loop(), [usual(10 + step % 250 / 10) for step in range(1_000)]),
    ),
    "growth without samples": ("drift", monitored(torch_loop(), growing(800, 5, 30), sample_seconds=1e6)),
}
