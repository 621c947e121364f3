"""The rule for slow matrix products: float64, float32 without TF32, or unaligned sizes.

The rule finds such products by the names of their kernels. It misses kernels whose names show no dtype, as those of
newer libraries. For comparison: the torch profiler warns if a script uses no tensor cores, and XProf warns if less than
10 % of the computation is in 16 bits.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import (
    main_kernel,
    main_line,
    mask_kernels_named,
    seconds_per_step,
)
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import step_framework
from forebay.doctor.analyse.kernel_kinds import is_wide_float
from forebay.doctor.model.formatting import format_percent, format_seconds, truncate
from forebay.doctor.predict.cure_changes import shrink_kernels
from forebay.doctor.rules.finding import Cure, Finding

__all__ = ["examine"]

MIN_REPORTED_SHARE = 0.1  # share of a step that such products take
MIN_COMPUTING_SHARE = 0.7  # share of the step; if the device computes less, the step waits for something else
LONG_KERNEL_SECONDS = 100e-6  # computation, not memory, limits a kernel this long


@dataclass(frozen=True, slots=True)
class SlowProducts:
    """A kind of slow matrix product, and its cure."""

    name: str
    pattern: re.Pattern[str]  # matches the names of its kernels
    least_saved_share: float  # share of the products' time that the cure saves at least, if kernels are long
    most_saved_share: float  # share of the products' time that the cure saves at most
    cure: str  # title of the cure
    code: dict[str, str]  # framework -> code of the cure


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding for each kind of product that takes a reportable share."""
    device_view = view.device
    if (
        device_view is None
        or not view.step_seconds
        or seconds_per_step(device_view, device_view.computing_intervals) < MIN_COMPUTING_SHARE * view.step_seconds
    ):
        return
    for kind in _SLOW_PRODUCTS:
        slow = _without_settings_in_place(view, device_view, kind)
        if slow is None:
            continue
        products = mask_kernels_named(device_view, slow.pattern.search)
        cost = min(seconds_per_step(device_view, device_view.intervals_of(products)), view.step_seconds)
        if cost >= MIN_REPORTED_SHARE * view.step_seconds:
            yield _finding(view, device_view, slow, products, cost)


def _without_settings_in_place(view: CaptureView, device_view: DeviceView, slow: SlowProducts) -> SlowProducts | None:
    """Return the products with a cure that the script does not use yet, else None.

    With TF32 and autocast in PyTorch, the script computes the remaining products in float32 on purpose.
    """
    if slow.code is not _TF32_CODE:
        return slow
    uses_16_bits = not all(map(is_wide_float, device_view.names))
    if view.frameworks.get("torch", {}).get("tf32") is not True or len(view.frameworks) > 1:
        return replace(slow, cure="use TF32", code=_TF32_CODE | {"torch": _TORCH_TF32}) if uses_16_bits else slow
    return None if uses_16_bits else replace(slow, cure="use 16 bits", code=_TF32_CODE | {"torch": _TORCH_16_BITS})


def _finding(view: CaptureView, device_view: DeviceView, slow: SlowProducts, products: Any, cost: float) -> Finding:
    kernel_seconds = cost * device_view.steps_done / max(1, int(products.sum()))
    least_saved_share = slow.least_saved_share if kernel_seconds >= LONG_KERNEL_SECONDS else 0.0
    changes = shrink_kernels(
        lambda kernel: bool(slow.pattern.search(kernel.name)),
        least_share=1 - slow.most_saved_share,
        most_share=1 - least_saved_share,
    )
    speedup = 1 / (1 - slow.most_saved_share)
    basis = f"the cure makes these products at most {speedup:.0f} times as fast; products limited by memory gain less"
    return Finding(
        rule="tensor_cores",
        title=f"{slow.name} take {format_percent(cost / view.step_seconds)} of a step, without the full speed of "
        "tensor cores",
        line=main_line(view, device_view, products),
        seconds=cost,
        cures=(Cure(slow.cure, slow.code.get(step_framework(view), slow.code["torch"]), basis, changes),),
        evidence=(
            f"Most of this time is {truncate(main_kernel(device_view, products), 70)}.",
            f"{products.sum() / device_view.steps_done:.0f} of {device_view.kernels_per_step:.0f} "
            f"kernels per step are such products, {format_seconds(kernel_seconds)} each.",
        ),
    )


_TORCH_TF32 = 'torch.set_float32_matmul_precision("high")   # TF32'
_TORCH_16_BITS = 'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = loss_of(model(x), y)'
_TF32_CODE = {
    "torch": f'{_TORCH_TF32}; or torch.autocast("cuda", dtype=torch.bfloat16)',
    "tensorflow": "tf.config.experimental.enable_tensor_float_32_execution(True)   # or the policy mixed_bfloat16",
    "jax": 'jax.config.update("jax_default_matmul_precision", "tensorfloat32")   # or arrays of bfloat16',
    "cupy": "CUPY_TF32=1 python train.py",
}
_FLOAT32_CODE = {
    "torch": "x, model = x.float(), model.float()   # and torch.set_default_dtype(torch.float32)",
    "tensorflow": 'x = tf.cast(x, tf.float32)   # once; keras.backend.set_floatx("float32")',
    "jax": 'x = x.astype("float32")   # and do not set jax_enable_x64',
    "cupy": 'x = x.astype("float32")   # once, before the loop',
}
_PADDING_CODE = {
    "torch": "layer = nn.Linear(512, 1008)   # multiples of 8: 1001 classes to 1008, a vocabulary of 50257 to 50264",
    "tensorflow": "layer = keras.layers.Dense(1008)   # multiples of 8: pad 1001 classes to 1008",
    "jax": "x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % 8)))   # multiples of 8",
}
_SLOW_PRODUCTS = (
    SlowProducts(
        "Matrix products in float64",
        re.compile(r"dgemm|d884gemm|f64f64", re.IGNORECASE),
        0.3,
        15 / 16,
        "compute in float32",
        _FLOAT32_CODE,
    ),
    SlowProducts(
        "Matrix products in float32 without TF32",
        re.compile(r"sgemm|f32f32_f32f32", re.IGNORECASE),
        0.5,
        7 / 8,
        "use TF32 or 16 bits",
        _TF32_CODE,
    ),
    SlowProducts(
        "Matrix products in 16 bits with sizes that are not multiples of 8",
        re.compile(r"(f16|bf16|16816|1688|h884).*align[12](?!\d)", re.IGNORECASE),
        0.0,
        1 / 2,
        "pad sizes to multiples of 8",
        _PADDING_CODE,
    ),
)
