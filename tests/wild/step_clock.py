"""Times the steps of a script. The runner copies this module beside the script, whose loop calls `mark`.

A mark reads a clock, which takes well under a microsecond. Every BLOCK-th mark first waits for the device, so that a
block of steps contains its device time. The module writes the marks when the script ends, or after a number of steps.
"""

import atexit
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

BLOCK = 10  # steps between two waits for the device
_marks: list[int] = []  # nanoseconds
_limit = int(os.environ.get("STEP_CLOCK_STEPS", "0")) or sys.maxsize


def mark(steps: int = 1) -> None:
    """Record the ends of `steps` steps of one call, as if all steps had taken the same time."""
    if len(_marks) // BLOCK != (len(_marks) + steps) // BLOCK:
        _wait_for_device()
    now = perf_counter_ns()
    before = _marks[-1] if _marks else now
    _marks.extend(before + (now - before) * number // steps for number in range(1, steps + 1))
    if len(_marks) > _limit:
        _write()
        sys.stdout.flush()
        os._exit(0)


def mark_batches(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fit` with a callback that marks each batch. With `steps_per_execution`, a call makes several steps."""
    import keras

    class Marks(keras.callbacks.Callback):  # type: ignore[misc]
        last = -1  # number of the last batch of this epoch

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self.last = -1

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            mark(batch - self.last if _marks else 1)
            self.last = batch

    def marked_fit(*arguments: Any, **options: Any) -> Any:
        options["callbacks"] = [*(options.get("callbacks") or []), Marks()]
        return fit(*arguments, **options)

    return marked_fit


def _wait_for_device() -> None:
    """Wait until the devices of the imported frameworks are idle."""
    torch, jax, tensorflow = (sys.modules.get(name) for name in ("torch", "jax", "tensorflow"))
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if jax is not None and _has_backend():
        jax.block_until_ready(jax.numpy.add(1, 1))  # runs after the earlier computations
    if tensorflow is not None and hasattr(tensorflow, "test") and tensorflow.config.list_physical_devices("GPU"):
        tensorflow.test.experimental.sync_devices()


def _has_backend() -> bool:
    """Return whether the script uses JAX. If it does not, a computation would reserve the memory of a GPU."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def _write() -> None:
    if path := os.environ.get("STEP_CLOCK_FILE"):
        Path(path).write_text(json.dumps(_marks))


atexit.register(_write)
