"""Hooks for TensorFlow: transfers, eager operations, compiled functions, sessions and input pipelines.

The hooks do not record read-backs by NumPy's ufuncs (`np.abs(tensor)` reads the memory of the tensor directly) and by
functions that `reads.NUMPY_READS` does not list, nor the exact times of copies inside a compiled function or a session.
"""

from functools import partial

from tensorflow.python.training import optimizer as v1_optimizers

from forebay.doctor.capture.hooks.calls import CallHook, HookedCall, hook_call
from forebay.doctor.capture.hooks.tensorflow.eager_ops import EagerOps, hook_operations
from forebay.doctor.capture.hooks.tensorflow.functions import hook_functions, is_eager
from forebay.doctor.capture.hooks.tensorflow.input_waits import InputWaits, hook_profiler
from forebay.doctor.capture.hooks.tensorflow.pipelines import Pipelines
from forebay.doctor.capture.hooks.tensorflow.reads import hook_reads
from forebay.doctor.capture.hooks.tensorflow.settings import hook_settings
from forebay.doctor.capture.hooks.tensorflow.tf_data import hook_data
from forebay.doctor.capture.hooks.tensorflow.transfers import hook_uploads
from forebay.doctor.capture.hooks.tensorflow.v1_sessions import hook_sessions
from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches
from forebay.doctor.model.events import EventKind

__all__ = ["install"]

STEP = "Optimizer.apply_gradients"  # API name in events


def install(patches: Patches) -> None:
    pipelines = Pipelines()
    waits = InputWaits(patches.ledger, pipelines)
    hook_reads(patches)
    hook_uploads(patches)
    hook_operations(patches, EagerOps(patches, waits))
    hook_functions(patches, waits)
    hook_sessions(patches)
    hook_data(patches, pipelines)
    hook_profiler(patches, waits)
    hook_settings(patches)
    _hook_steps(patches)


def _hook_steps(patches: Patches) -> None:
    """Record a step at each eager call of a TensorFlow 1 optimizer.

    The Keras hooks cover Keras optimizers.
    """
    hook_call(
        patches,
        v1_optimizers.Optimizer,
        "apply_gradients",
        CallHook(STEP, partial(_record_step, patches.ledger), should_record=is_eager, nested="recorded"),
    )


def _record_step(ledger: Ledger, call: HookedCall) -> None:
    ledger.add(EventKind.STEP, STEP, call.end, end=call.end)
