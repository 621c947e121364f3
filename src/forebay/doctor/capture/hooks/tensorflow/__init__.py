"""TensorFlow: what crosses, what is read back, which operations run one by one, what is traced, and who makes batches.

Not seen: what NumPy's other functions read out of a tensor (`np.mean(tensor)` takes its memory as it lies), what a
compiled function copies between devices, and how long a session takes to copy what it is fed.
"""

from functools import partial
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.training import optimizer as first_optimizers

from forebay.doctor.capture.hooks.calls import Call, watch_call
from forebay.doctor.capture.hooks.tensorflow.eager_ops import Operations, watch_operations
from forebay.doctor.capture.hooks.tensorflow.functions import watch_functions
from forebay.doctor.capture.hooks.tensorflow.input_waits import Waits, watch_profiler
from forebay.doctor.capture.hooks.tensorflow.pipelines import Pipelines
from forebay.doctor.capture.hooks.tensorflow.reads import watch_reads
from forebay.doctor.capture.hooks.tensorflow.tf_data import watch_data
from forebay.doctor.capture.hooks.tensorflow.uploads import watch_uploads
from forebay.doctor.capture.hooks.tensorflow.v1_sessions import watch_sessions
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import Kind

__all__ = ["install"]

STEP = "Optimizer.apply_gradients"


def install(patches: Patches) -> None:
    pipelines = Pipelines()
    waits = Waits(patches.ledger, pipelines)
    watch_reads(patches)
    watch_uploads(patches)
    watch_operations(patches, Operations(patches, waits))
    watch_functions(patches, waits)
    watch_sessions(patches)
    watch_data(patches, pipelines)
    watch_profiler(patches, waits)
    _watch_steps(patches)


def _watch_steps(patches: Patches) -> None:
    """The optimizers of TensorFlow's first version, where they run at once; Keras's are watched with Keras."""
    then = partial(_stepped, patches.ledger)
    optimizer = first_optimizers.Optimizer
    watch_call(patches, optimizer, "apply_gradients", api=STEP, then=then, when=_runs_now, inner="seen")


def _runs_now(*_: Any, **__: Any) -> bool:
    return bool(context.executing_eagerly())


def _stepped(ledger: Ledger, call: Call) -> None:
    ledger.add(Kind.STEP, STEP, call.end, end=call.end)
