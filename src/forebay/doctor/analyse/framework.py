"""The framework of a call, its data, and whether the call runs asynchronously."""

import re
from functools import lru_cache

from forebay.doctor.analyse.capture_view import CallSite, CaptureView
from forebay.doctor.model.events import EventKind

__all__ = [
    "MIN_PIECES",
    "dtype_bits",
    "is_copy",
    "feed_framework",
    "framework_of",
    "is_device",
    "is_python_data",
    "is_on_device",
    "is_asynchronous",
    "array_framework",
    "is_framework_function",
    "is_module_traversal",
    "pieces_per_call",
    "step_framework",
]

MIN_PIECES = 2  # arrays per call; a call with fewer joins nothing

# Packages whose functions compute, or call functions that compute.
_FRAMEWORK_PACKAGES = frozenset(
    {"torch", "torchvision", "tensorflow", "keras", "jax", "jaxlib", "flax", "optax", "haiku", "equinox", "cupy"}
    | {"lightning", "pytorch_lightning", "transformers", "accelerate", "forebay"}
)

# Start of the names of functions of Flax NNX that take modules apart into arrays, or build modules from arrays.
_NNX_TRAVERSALS = ("flax.nnx.transforms.compilation.", "flax.nnx.graph", "flax.nnx.extract.", "flax.nnx.statelib.")

# Kinds of events that show which framework uses the batches. Uploads are included, because the hooks do not record all
# operations of PyTorch and TensorFlow.
_COMPUTING_KINDS = (EventKind.STEP, EventKind.RUN, EventKind.TRANSFORM, EventKind.OPS, EventKind.UPLOAD)

# Kinds of events that show which framework computes the steps, the most reliable kinds first.
_STEP_KINDS = (
    (EventKind.STEP,),
    (EventKind.RUN, EventKind.TRANSFORM, EventKind.OPS),
    (EventKind.UPLOAD, EventKind.DOWNLOAD),
)
# API name of a step of an optimizer, in a loop that the script writes -> framework. `framework_of` does not know these
# names.
_OPTIMIZERS = {"Optimizer.apply": "keras", "Optimizer.apply_gradients": "tensorflow"}

# API name up to the first dot, parenthesis or space -> framework.
_FRAMEWORK_PREFIXES = {
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "Session": "tensorflow",
    "torch": "torch",
    "Tensor": "torch",
    "DataLoader": "torch",
    "optimizer": "torch",
    "compiled": "torch",
    "CUDAGraph": "torch",
    "jax": "jax",
    "jnp": "jax",
    "Array": "jax",
    "array": "jax",
    "cupy": "cupy",
    "cp": "cupy",
    "keras": "keras",
    "Model": "keras",
    "fit": "keras",
}
_PYTHON_TYPES = frozenset({"list", "tuple", "float", "int", "bool", "dict", "object"})


def framework_of(view: CaptureView, api: str) -> str:
    """Return the framework of a call by its API name.

    If the name is unknown, or begins with `Tensor` although the script has not loaded PyTorch, return the first
    framework that the script has loaded. If the script has loaded none, return "numpy" for an unknown name.
    """
    prefix = re.split(r"[.( ]", api, maxsplit=1)[0]
    loaded = list(view.frameworks)
    framework = _FRAMEWORK_PREFIXES.get(prefix)
    if framework is None or (prefix == "Tensor" and loaded and "torch" not in loaded):
        return loaded[0] if loaded else framework or "numpy"
    return framework


def feed_framework(view: CaptureView, api: str) -> str:
    """Return the framework to which a Forebay feed should hand its batches.

    Return Keras if its methods, such as `fit`, end the steps or take the batches. Return JAX or CuPy if the loop
    computes only with this framework, even if its loader belongs to another framework. Otherwise return the framework
    of the call `api`.
    """
    is_keras_loop = any(
        framework_of(view, site.api) == "keras" for site in view.sites_of(EventKind.STEP, EventKind.INPUT)
    )
    if is_keras_loop:
        return "keras"
    sites = [site for site in view.sites_of(*_COMPUTING_KINDS) if site.in_loop]
    consumers = {framework_of(view, site.api) for site in sites}
    return consumers.pop() if len(consumers) == 1 and consumers <= {"jax", "cupy"} else framework_of(view, api)


def array_framework(view: CaptureView, api: str) -> str:
    """Return the framework whose arrays a call uses.

    For Keras, which has no arrays of its own, return its backend. Captures of Forebay 0.1 do not name the backend. For
    them, return the first loaded framework.
    """
    framework = framework_of(view, api)
    return _keras_backend(view) if framework == "keras" else framework


def _keras_backend(view: CaptureView) -> str:
    return str(view.capture.facts.get("keras_backend") or next(iter(view.frameworks), "tensorflow"))


def step_framework(view: CaptureView) -> str:
    """Return the framework that computes the steps; for Keras, its backend.

    The calls that end the steps name the framework, if the calls are EventKind.STEP. Otherwise, return the framework
    that the loop calls for the longest time. Frameworks that only convert data count if no other framework computes.
    """
    for kinds in _STEP_KINDS:
        seconds: dict[str, float] = {}
        for site in (site for site in view.sites_of(*kinds) if site.in_loop):
            framework = _OPTIMIZERS.get(site.api) or framework_of(view, site.api)
            framework = _keras_backend(view) if framework == "keras" else framework
            if framework in view.frameworks:
                seconds[framework] = seconds.get(framework, 0.0) + site.seconds
        if seconds:
            return max(seconds, key=lambda framework: seconds[framework])
    return next(iter(view.frameworks), "torch")


def is_device(name: object) -> bool:
    """Whether a device name of any framework names an accelerator, not the CPU."""
    return isinstance(name, str) and bool(name) and "cpu" not in name.lower()


def is_on_device(site: CallSite) -> bool:
    """Whether at least one call of this site used an array on a device."""
    return any(is_device(name) for name in site.values("device"))


def is_asynchronous(view: CaptureView, site: CallSite) -> bool:
    """Whether the framework of a call site computes asynchronously, so that reading a value waits.

    JAX and CuPy always do. PyTorch and TensorFlow do on a GPU; on the CPU, they compute the value before the call
    returns. If no event of the site names its device, assume a GPU if a framework sees one.
    """
    if is_on_device(site) or framework_of(view, site.api) in ("jax", "cupy"):
        return True
    return view.has_gpu and not site.values("device")


def is_framework_function(name: str) -> bool:
    """Whether a sampled function, such as `torch.nn.modules.conv.forward`, belongs to a framework."""
    return name.partition(".")[0] in _FRAMEWORK_PACKAGES


def is_module_traversal(name: str) -> bool:
    """Whether a sampled function of Flax NNX converts modules to arrays or back.

    NNX does this for each compiled call.
    """
    return name.startswith(_NNX_TRAVERSALS)


def is_python_data(site: CallSite) -> bool:
    """Whether a call of this site converts Python objects, such as lists of numbers."""
    return any(str(kind) in _PYTHON_TYPES for kind in site.values("from_dtype"))


def pieces_per_call(site: CallSite) -> float:
    """Return the mean number of NumPy arrays that a call joins, or 0."""
    return sum(filter(None, site.values("pieces"))) / len(site.events) if site.events else 0.0


def is_copy(site: CallSite) -> bool:
    """Whether a call copies data instead of creating a view. If unknown, assume a copy."""
    return any(site.values("copied")) or not site.values("copied")


@lru_cache(maxsize=64)
def dtype_bits(dtype: str | None) -> tuple[str, int] | None:
    """Return family and bits of a dtype: ("float", 64) for `torch.float64`; None if unknown."""
    match = re.search(r"(bfloat|float|uint|int|complex)(\d+)", dtype or "")
    return (match[1], int(match[2])) if match else None
