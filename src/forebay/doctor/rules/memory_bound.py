"""The rule for steps that mostly run kernels limited by the memory of the device.

Matrix products and convolutions do much arithmetic per byte. Other kernels, such as elementwise operations and copies,
wait for the memory. A compiler fuses such kernels, so that intermediate results never reach the memory. The rule
estimates bytes and arithmetic from names and shapes, because counters of the hardware need privileges.
"""

import ast
from collections.abc import Collection, Iterator

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.device_time import main_line
from forebay.doctor.analyse.device_view import DeviceView
from forebay.doctor.analyse.framework import feed_framework, step_framework
from forebay.doctor.analyse.kernel_kinds import (
    FUSABLE,
    MEMORY_BOUND,
    KernelKind,
    is_fused_optimizer,
    is_unfused_update,
    is_wide_float,
    kind_of_kernel,
)
from forebay.doctor.analyse.memory_work import MemoryWork, find_memory_work
from forebay.doctor.analyse.script_code import ScriptCode, script_code
from forebay.doctor.model.events import EventKind
from forebay.doctor.model.formatting import format_percent, format_seconds
from forebay.doctor.predict.changes import chain
from forebay.doctor.predict.compile_cure_changes import compile_model
from forebay.doctor.predict.cure_changes import Changes
from forebay.doctor.predict.kernel_changes import by_name, fuse_elementwise, fuse_updates, scale_kernels
from forebay.doctor.predict.machines import DEVICES, find_gpu, gpu_name
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_line
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["examine"]

MIN_SHARE_OF_DEVICE_TIME = 0.5  # share of the device's time that memory-bound kernels take
MIN_COMPUTING_SHARE = 0.7  # share of the step; if the device computes less, the step waits for something else
MIN_CURED_SHARE = 0.1  # share of the memory-bound time; the rule offers no cure of a smaller part
# The time of a fused kernel, as a multiple of the longest of the kernels that it replaces: at best and at worst.
FUSED_TIMES = 1.0, 2.0
# Shares of the time that remain with 16 bits: half at best; all at worst, because autocast may keep float32.
NARROW_SHARES = 0.5, 1.0
MAX_CURES = 3
# Classes of torch.optim that accept `fused=True` on CUDA. Adagrad accepts it in newer versions only.
FUSABLE_OPTIMIZERS = frozenset({"Adam", "AdamW", "SGD"})
WITHOUT_BFLOAT16 = ("v100", "t4")  # names of GPUs, as `find_gpu` returns them


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if memory-bound kernels take most device time, and a cure exists."""
    device_view = view.device
    if device_view is None or not view.step_seconds:
        return
    work = find_memory_work(view, device_view)
    if work.share < MIN_SHARE_OF_DEVICE_TIME or work.device_seconds < MIN_COMPUTING_SHARE * view.step_seconds:
        return
    cures = tuple(_cures(view, work))[:MAX_CURES]
    if cures:
        yield _finding(view, device_view, work, cures)


def _finding(view: CaptureView, device_view: DeviceView, work: MemoryWork, cures: tuple[Cure, ...]) -> Finding:
    return Finding(
        rule="memory_bound",
        title=f"Memory-bound kernels take {format_percent(work.share)} of the device's time",
        line=main_line(view, device_view, work.mask),
        seconds=min(work.seconds, view.step_seconds),
        cures=cures,
        evidence=(_describe_kinds(work), _describe_bandwidth(view, work), _describe_arithmetic(view)),
    )


def _describe_kinds(work: MemoryWork) -> str:
    total = sum(work.seconds_by_kind.values())
    kinds = [f"{kind.value} {format_percent(seconds / total)}" for kind, seconds in work.seconds_by_kind.items()][:4]
    return f"They take {format_seconds(work.seconds)} per step: {', '.join(kinds)}."


def _describe_bandwidth(view: CaptureView, work: MemoryWork) -> str:
    gpu = find_gpu(gpu_name(view))
    if not work.bytes_per_second:
        return "The bytes of these kernels are not known."
    known = f"estimated from kernels that take {format_percent(work.known_share)} of this time"
    speed = f"{work.bytes_per_second / 1e12:.1f} TB/s ({known})"
    if gpu is None:
        return f"They reach {speed}. The peak of this GPU is not known."
    peak = DEVICES[gpu].memory
    return f"They reach {speed}, {format_percent(min(1.0, work.bytes_per_second / 1e12 / peak))} of the peak bandwidth."


def _describe_arithmetic(view: CaptureView) -> str:
    """Return a sentence about the model FLOPs utilisation."""
    work, gpu = view.capture.facts.get("arithmetic") or {}, find_gpu(gpu_name(view))
    flops = work.get("flops_per_step")
    if not flops or gpu is None:
        return "The model FLOPs utilisation is not known."
    share = flops / view.step_seconds / (DEVICES[gpu].bfloat16 * 1e12)
    return (
        f"Model FLOPs utilisation: {format_percent(share)} of the bfloat16 peak (estimated: "
        f"{flops / 1e12:.3g} TFLOP per step, from {work.get('source') or 'shapes'})."
    )


def _cures(view: CaptureView, work: MemoryWork) -> Iterator[Cure]:
    """Yield the cures that the script lacks and that change enough of the time."""
    framework, least = _framework(view), MIN_CURED_SHARE * work.seconds
    can_fuse = not _is_compiled(view, framework, work) and not _repeats_one_line(view)
    if work.seconds_of(*FUSABLE) >= least and can_fuse and framework in _COMPILE_CODE:
        yield _compile_cure(view, framework)
    if framework == "torch" and work.seconds_of(KernelKind.LAYOUT) >= least and not _has_setting(view, "channels_last"):
        yield _layout_cure()
    is_fused = _has_setting(view, "fused") or any(is_fused_optimizer(name) for name in work.names)
    if framework == "torch" and work.seconds_of(KernelKind.OPTIMIZER) >= least and not is_fused:
        yield from _optimizer_cure(view)
    if framework in _NARROW_CODE and _is_wide(view):
        yield _narrow_cure(framework)


def _has_setting(view: CaptureView, setting: str) -> bool:
    """Whether PyTorch's optimizer, or the model that it trains, has a setting.

    The result is False for captures of older versions, which do not record settings.
    """
    return any((event.detail or {}).get(setting) is True for event in view.events_of(EventKind.STEP))


def _framework(view: CaptureView) -> str:
    return "keras" if feed_framework(view, "") == "keras" else step_framework(view)


def _is_compiled(view: CaptureView, framework: str, work: MemoryWork) -> bool:
    """Whether a compiler has fused kernels, or compiled the functions of the loop."""
    if work.seconds_of(KernelKind.FUSED):
        return True
    return framework in ("torch", "jax") and any(site.in_loop for site in view.sites_of(EventKind.RUN))


def _repeats_one_line(view: CaptureView) -> bool:
    """Whether a step is only a group of calls of one line.

    A compiler does not fuse the kernels of different calls.
    """
    is_inferred = view.steps is not None and view.steps.anchor[0] == EventKind.OPS
    return is_inferred and len({site.line for site in view.sites_of(EventKind.OPS)}) == 1


def _is_wide(view: CaptureView) -> bool:
    """Whether no kernel computes in 16 bits, although the GPU supports bfloat16."""
    names = view.device.names if view.device is not None else ()
    return find_gpu(gpu_name(view)) not in WITHOUT_BFLOAT16 and all(map(is_wide_float, names))


def _compile_cure(view: CaptureView, framework: str) -> Cure:
    return Cure(
        "let a compiler fuse these kernels",
        _COMPILE_CODE[framework],
        basis="Kernels that follow each other become one, which takes 1 to 2 times as long as the longest of them"
        + (", and the host launches fewer kernels" if framework == "torch" else ""),
        changes=_fusion(view, framework),
    )


def _fusion(view: CaptureView, framework: str) -> Changes:
    """Return the best and the worst outcome of a compiler that fuses kernels.

    The compiler of PyTorch also shortens the launches of the kernels.
    """
    fusions = [fuse_elementwise(by_name(_is_fusable), times_longest=times) for times in FUSED_TIMES]
    if framework != "torch":
        return tuple(fusions)
    return tuple(chain(outcome) for outcome in zip(fusions, compile_model(view), strict=True))


def _layout_cure() -> Cure:
    return Cure(
        "store images with the channels last",
        "model = model.to(memory_format=torch.channels_last)\n"
        "images = images.to(memory_format=torch.channels_last)   # every batch",
        basis="cuDNN no longer changes the layout before and after convolutions",
        changes=(scale_kernels(by_name(lambda name: kind_of_kernel(name) is KernelKind.LAYOUT), 0.0),),
    )


def _optimizer_cure(view: CaptureView) -> Iterator[Cure]:
    """Yield the cure that fuses the optimizer, if its class and its arguments allow this.

    Captures of older versions do not name the class, which may then be each of FUSABLE_OPTIMIZERS.
    """
    recorded = [(event.detail or {}).get("optimizer") for event in view.events_of(EventKind.STEP)]
    names = {str(name) for name in recorded if name} or {*FUSABLE_OPTIMIZERS}
    line = view.line(view.steps.anchor[2]) if view.steps else None
    code = script_code(view, line)
    if not names <= FUSABLE_OPTIMIZERS or (code is not None and _refuses_fusion(code)):
        return
    if len(names) == 1:
        example = f"optimizer = torch.optim.{min(names)}(..., fused=True)   # without `foreach`; other arguments stay"
    else:
        example = "optimizer = ...   # set fused=True; SGD, Adam and AdamW have this argument"
    yield Cure(
        "update all parameters in one pass",
        fit_line(view, line, lambda code, _: _fuse_optimizer(code, names)) or example,
        basis="One pass reads parameters, gradients and states once, and writes parameters and states once",
        changes=(fuse_updates(by_name(is_unfused_update)),),
    )


def _refuses_fusion(code: ScriptCode) -> bool:
    """Whether an argument in the script excludes `fused=True`.

    For example, a fused update accepts no sparse gradients.
    """
    keywords = [each for node in ast.walk(code.tree) if isinstance(node, ast.Call) for each in node.keywords]
    return any(each.arg in ("differentiable", "sparse") and code.text(each.value) == "True" for each in keywords)


def _fuse_optimizer(code: ScriptCode, names: Collection[str]) -> list[Edit]:
    """Return the edit that fuses the only optimizer that the script makes.

    It removes the argument `foreach`, which excludes `fused=True`.
    """
    calls = code.calls(*names)
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return []
    patches = code.set_keywords(calls[0], {"fused": "True"}, instead_of="foreach")
    return patch_statement(code, code.statement_of(calls[0]), *patches)


def _narrow_cure(framework: str) -> Cure:
    return Cure(
        "compute in bfloat16",
        _NARROW_CODE[framework],
        basis="16 bits halve the bytes of these kernels; kernels that stay in float32 gain nothing. Results differ "
        "slightly",
        changes=tuple(
            scale_kernels(by_name(lambda name: kind_of_kernel(name) in MEMORY_BOUND - {KernelKind.OPTIMIZER}), share)
            for share in NARROW_SHARES
        ),
    )


def _is_fusable(name: str) -> bool:
    return kind_of_kernel(name) in FUSABLE


_COMPILE_CODE = {
    "torch": "model = torch.compile(model)   # or the function that computes the loss",
    "tensorflow": "@tf.function(jit_compile=True)\ndef train_step(x, y): ...",
    "keras": "model.compile(optimizer, loss, jit_compile=True)",
    "jax": "@jax.jit\ndef train_step(state, batch): ...",
    "cupy": "@cupy.fuse()\ndef formula(x, y): ...   # the elementwise operations of the step",
}
_NARROW_CODE = {
    "torch": "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss = loss_of(model(x), y)",
    "tensorflow": "keras.mixed_precision.set_global_policy('mixed_bfloat16')   # before the model is built",
    "keras": "keras.mixed_precision.set_global_policy('mixed_bfloat16')   # before the model is built",
    "jax": "activations = activations.astype(jnp.bfloat16)   # keep the parameters in float32",
}
