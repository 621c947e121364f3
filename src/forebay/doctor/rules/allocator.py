"""The rule for loops that allocate device memory in every step instead of reusing it.

It also warns if PyTorch's allocator failed at first, or if its free memory is in small pieces between tensors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.allocations import (
    Allocations,
    Fragmentation,
    count_retries,
    find_allocations,
    find_fragmentation,
)
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.framework import step_framework
from forebay.doctor.analyse.host_lines import HostLine, host_lines
from forebay.doctor.model.formatting import format_count, format_percent, format_seconds
from forebay.doctor.predict.kernel_changes import remove_cuda_calls
from forebay.doctor.rules.avoidable_calls import EMPTY_CACHE
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.fitted_code import fit_removal
from forebay.doctor.rules.wording import source_text

__all__ = ["examine"]

MIN_REPORTED_SHARE = 0.03  # share of a step; the report omits cures that save less
MIN_INACTIVE_SHARE = 0.25  # share of the reserved memory in free pieces; a smaller share is usual
MIN_RESERVED_SHARE = 0.5  # share of the device's memory; if PyTorch reserves less, there is room for other tensors
MIN_SAVED_SHARE = 0.5  # share of the time of allocations that a cure saves at worst, if some allocations may remain
_FALSE, _TRUE = ("false", "0"), ("true", "1")  # values of environment variables


@dataclass(frozen=True, slots=True)
class _Setting:
    """An environment variable that makes a framework allocate memory in every step."""

    framework: str
    name: str
    values: tuple[str, ...]  # values with this effect, in lower case; empty if every value has it
    effect: str  # what the framework does without the variable
    removes_all: bool  # whether the framework allocates nothing in the loop without the variable


_SETTINGS = (
    _Setting("jax", "XLA_PYTHON_CLIENT_ALLOCATOR", ("platform",), "JAX then reuses its memory", True),
    _Setting("jax", "XLA_PYTHON_CLIENT_PREALLOCATE", _FALSE, "JAX then allocates once, at its start", False),
    _Setting("torch", "PYTORCH_NO_CUDA_MEMORY_CACHING", (), "PyTorch then reuses its memory", True),
    _Setting("tensorflow", "TF_FORCE_GPU_ALLOW_GROWTH", _TRUE, "TensorFlow then allocates once, at its start", False),
)


def examine(view: CaptureView) -> Iterator[Finding]:
    """Yield a finding if allocations are slow, else a warning about retries or fragmentation."""
    device_view = view.device
    allocations = find_allocations(view, device_view) if device_view is not None and view.step_seconds else None
    retries = count_retries(view)
    if allocations is not None and allocations.seconds >= MIN_REPORTED_SHARE * view.step_seconds:
        yield _finding(view, allocations, retries)
    elif retries:
        yield _warning(view, retries)
    elif (fragmentation := find_fragmentation(view)) is not None and _is_severe(fragmentation):
        yield from _fragmentation_warnings(view, fragmentation)


def _finding(view: CaptureView, allocations: Allocations, retries: int) -> Finding:
    seconds, emptying_line = min(allocations.seconds, view.step_seconds), _find_emptying_line(view)
    calls = f"{allocations.calls:.0f}" if allocations.calls >= 1.5 else f"{allocations.calls:.1f}"
    evidence = f"{calls} calls per step allocate or free device memory, mostly {allocations.function}."
    return Finding(
        rule="allocator",
        title=f"Allocating device memory takes {format_percent(seconds / view.step_seconds)} of a step",
        line=emptying_line.line if emptying_line else allocations.line,
        seconds=seconds,
        cures=tuple(_cures(view, seconds, emptying_line)),
        evidence=(
            f"{evidence} They take {format_seconds(allocations.seconds)}.",
            *([_describe_retries(retries)] if retries else []),
        ),
    )


def _warning(view: CaptureView, retries: int) -> Finding:
    """Build the warning about retries of PyTorch's allocator. Their cost was not recorded."""
    return Finding(
        rule="allocator",
        title=f"PyTorch emptied its cache of device memory {format_count(retries, 'time')} in the loop",
        line=None,
        seconds=0.0,
        cures=tuple(_cures(view, 0.0, _find_emptying_line(view))),
        evidence=(_describe_retries(retries),),
    )


def _is_severe(found: Fragmentation) -> bool:
    """Whether free pieces take a large share of memory on a rather full device."""
    is_full = found.reserved_nbytes >= MIN_RESERVED_SHARE * found.total_nbytes
    return is_full and found.inactive_nbytes >= MIN_INACTIVE_SHARE * found.reserved_nbytes


def _fragmentation_warnings(view: CaptureView, found: Fragmentation) -> Iterator[Finding]:
    """Yield the warning, unless the script already lets segments of memory grow."""
    settings: Mapping[str, str] = view.capture.facts.get("settings") or {}
    if "expandable_segments:true" in _allocator_options(settings):
        return
    share = format_percent(found.inactive_nbytes / found.reserved_nbytes)
    cure = Cure(
        "let segments grow",
        _REUSE_CODE["torch"],
        basis="this saves memory; it saves time only if allocations would fail later",
    )
    yield Finding(
        rule="allocator",
        title=f"{share} of the memory that PyTorch reserves on {found.device} is free, but in pieces between tensors",
        line=None,
        seconds=0.0,
        cures=(cure,),
        evidence=(
            f"{format_nbytes(found.inactive_nbytes)} of {format_nbytes(found.reserved_nbytes)} are free in these "
            f"pieces; the device has {format_nbytes(found.total_nbytes)}. A tensor that is larger than each piece does "
            "not fit.",
        ),
    )


def _describe_retries(retries: int) -> str:
    return (
        f"{format_count(retries, 'allocation')} failed at first, because memory was short or in too small pieces. "
        "PyTorch then freed its cache and waited for the device."
    )


def _find_emptying_line(view: CaptureView) -> HostLine | None:
    """Return the line that empties PyTorch's cache, if samples of the host show one."""
    return next(
        (line for line in host_lines(view) if any(function in EMPTY_CACHE for function, _ in line.functions)), None
    )


def _cures(view: CaptureView, seconds: float, emptying_line: HostLine | None) -> Iterator[Cure]:
    """Yield one cure: remove the cause, add a setting, or use batches of equal shape."""
    settings: Mapping[str, str] = view.capture.facts.get("settings") or {}
    framework = step_framework(view)
    setting = next((each for each in _SETTINGS if _applies(each, settings, framework)), None)
    if setting is not None:
        code = f"unset {setting.name}   # {setting.effect}"
        yield _cure(f"remove the setting {setting.name}", code, seconds, setting.removes_all)
    elif emptying_line is not None:
        code = fit_removal(view, emptying_line.line, "empty_cache")
        code = code or f"# remove this line: {source_text(emptying_line.line, 'torch.cuda.empty_cache()')}"
        yield _cure("keep the memory for the next step", code, seconds, True)
    elif framework in _REUSE_CODE and "expandable_segments:true" not in _allocator_options(settings):
        yield _cure("let the framework reuse its memory", _REUSE_CODE[framework], seconds, False)
    else:
        yield _cure("use batches of the same shape", _SHAPE_CODE, seconds, False)


def _cure(title: str, code: str, seconds: float, removes_all: bool) -> Cure:
    if not seconds:
        return Cure(title, code, basis="The time of the retries was not recorded")
    shares = (1.0,) if removes_all else (1.0, MIN_SAVED_SHARE)
    basis = "The cure removes the calls that allocate and free memory" + ("" if removes_all else ", or half of them")
    return Cure(title, code, basis=basis, changes=tuple(remove_cuda_calls(seconds * share) for share in shares))


def _applies(setting: _Setting, settings: Mapping[str, str], framework: str) -> bool:
    value = settings.get(setting.name, "").lower()
    return setting.framework == framework and bool(value) and (not setting.values or value in setting.values)


def _allocator_options(settings: Mapping[str, str]) -> str:
    """Return the options of PyTorch's allocator, from both names of its variable."""
    return (settings.get("PYTORCH_ALLOC_CONF", "") + settings.get("PYTORCH_CUDA_ALLOC_CONF", "")).lower()


_SHAPE_CODE = (
    "batch = pad(batch, length)   # `length` is the same in all steps, so that freed memory fits the next step"
)
_REUSE_CODE = {
    "torch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py   # or batches of the same shape",
    "tensorflow": "# remove tf.config.experimental.set_memory_growth(...): TensorFlow then allocates once",
    "cupy": "cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)   # once, at the start; it reuses memory",
}
