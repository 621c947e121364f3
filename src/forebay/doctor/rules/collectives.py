"""The rule for collectives (such as all-reduce) that no other kernel overlaps.

The limits are those of XProf: collectives that take 3 % of a step without overlap are moderate, and 15 % are severe.
The profiler of PyTorch reports them from 10 % on.
"""

from collections.abc import Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import (
    COLLECTIVE,
    main_kernel,
    main_line,
    mask_kernels_named,
    seconds_per_step,
)
from forebay.doctor.analyse.framework import framework_of
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds, truncate
from forebay.doctor.predict.cure_changes import shrink_kernels
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MODERATE = 0.03  # share of a step that collectives take without overlap; the rule does not report a smaller share
SEVERE = 0.15  # share of a step; the evidence calls collectives without overlap severe from this share on
BASIS = "at best, computation hides all of this time; the wait for a slower rank remains"


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if collectives without overlap take a moderate share of a step."""
    device_view = view.device
    if device_view is None or not view.step_seconds:
        return
    collectives = mask_kernels_named(device_view, COLLECTIVE.search)
    not_overlapped = device_view.intervals_of(collectives).difference(
        device_view.intervals_of(device_view.is_kernel & ~collectives)
    )
    cost = min(seconds_per_step(device_view, not_overlapped), view.step_seconds)
    if cost < MODERATE * view.step_seconds:
        return
    changes = shrink_kernels(lambda kernel: bool(COLLECTIVE.search(kernel.name)), least_share=0.0, most_share=1.0)
    api = next((site.api for site in view.sites_of(EventKind.STEP, EventKind.RUN)), "")
    share = cost / view.step_seconds
    total = seconds_per_step(device_view, device_view.intervals_of(collectives))
    yield Finding(
        rule="collectives",
        title=f"The device runs only collectives for {format_percent(share)} of a step",
        line=main_line(view, device_view, collectives),
        seconds=cost,
        cures=(Cure(_CURE_TITLE, _CODE.get(framework_of(view, api), _JAX_CODE), BASIS, changes),),
        evidence=(
            f"This is {'severe' if share >= SEVERE else 'moderate'}. {format_seconds(cost)} of the "
            f"{format_seconds(total)} of collectives per step overlap no other kernel.",
            f"The collective with the longest total time is {truncate(main_kernel(device_view, collectives), 50)}.",
            "To find the slowest rank, save a capture of every rank and pass all of them to `forebay doctor`.",
        ),
    )


_CURE_TITLE = "communicate less often, in fewer bytes, or during computation"
_JAX_CODE = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true python train.py"
_CODE = {
    "torch": "model = DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)\n"
    "model.register_comm_hook(None, default_hooks.bf16_compress_hook)   # half the bytes\n"
    "with model.no_sync(): ...   # for all but the last of several small batches",
    "jax": _JAX_CODE,
    "tensorflow": "gradients = [tf.cast(gradient, tf.bfloat16) for gradient in gradients]   # before they are reduced",
}
