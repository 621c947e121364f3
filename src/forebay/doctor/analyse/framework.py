"""Which framework a call belongs to, where its data lies, and whether Python runs ahead of the work. Pure."""

import re
from functools import lru_cache

from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.model.events import Kind

__all__ = [
    "bits_of",
    "copies",
    "feeds",
    "framework_of",
    "is_device",
    "is_python",
    "on_device",
    "runs_ahead",
    "uploads_to",
]

# How calls begin, as users write them.
_BEGINNINGS = {
    "tf": "tensorflow",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "Tensor": "torch",
    "DataLoader": "torch",
    "optimizer": "torch",
    "jax": "jax",
    "jnp": "jax",
    "Array": "jax",
    "cupy": "cupy",
    "cp": "cupy",
    "keras": "keras",
    "Model": "keras",
    "fit": "keras",
}
_PYTHON = frozenset({"list", "tuple", "float", "int", "bool", "dict", "object"})


def framework_of(case: Case, api: str) -> str:
    """By the name of the call; where that could be anybody's, the framework that the script has loaded."""
    beginning = re.split(r"[.( ]", api, maxsplit=1)[0]
    loaded = list(case.frameworks)
    named = _BEGINNINGS.get(beginning)
    if named is None or (beginning == "Tensor" and loaded and "torch" not in loaded):
        return loaded[0] if loaded else named or "numpy"
    return named


def feeds(case: Case, api: str) -> str:
    """Whom a feed would feed: the framework, or Keras where `fit` drives the loop."""
    driven = any(framework_of(case, site.api) == "keras" for site in case.of(Kind.STEP, Kind.INPUT))
    return "keras" if driven else framework_of(case, api)


def uploads_to(case: Case, api: str) -> str:
    """Whose arrays these are: Keras has none of its own."""
    framework = framework_of(case, api)
    return next(iter(case.frameworks), "tensorflow") if framework == "keras" else framework


def is_device(name: object) -> bool:
    """Whether this names something else than the host, however the framework spells it."""
    return isinstance(name, str) and bool(name) and "cpu" not in name.lower()


def on_device(site: Site) -> bool:
    return any(is_device(name) for name in site.values("device"))


def runs_ahead(case: Case, site: Site) -> bool:
    """Whether asking for a value means waiting: PyTorch and TensorFlow on the CPU have it when a call returns."""
    if on_device(site) or framework_of(case, site.api) in ("jax", "cupy"):
        return True
    return case.has_gpu and not site.values("device")


def is_python(site: Site) -> bool:
    """Whether numbers come one by one, as Python's own objects."""
    return any(str(kind) in _PYTHON for kind in site.values("from_dtype"))


def copies(site: Site) -> bool:
    """Whether data is copied, not only looked at in another way."""
    return any(site.values("copied")) or not site.values("copied")


@lru_cache(maxsize=64)
def bits_of(dtype: str | None) -> tuple[str, int] | None:
    """Family and width of a type: `torch.float64` is ("float", 64); None where it names none."""
    found = re.search(r"(bfloat|float|uint|int|complex)(\d+)", dtype or "")
    return (found[1], int(found[2])) if found else None
