"""The versions of the libraries that decode images, for the keys of caches: the pixels may change with them."""

from importlib import import_module
from importlib.util import find_spec

__all__ = ["decoder_versions"]

# Name of a decoder -> the modules that it uses. All use Pillow for the images that the others refuse.
_MODULES = {"pillow": ("PIL",), "simplejpeg": ("PIL", "simplejpeg"), "opencv": ("PIL", "simplejpeg", "cv2")}


def decoder_versions(decoder: str) -> dict[str, str]:
    """Return the version of each module that a decoder uses; "auto" may use each one that is installed.

    >>> sorted(decoder_versions("pillow"))
    ['PIL']
    """
    modules = _MODULES.get(decoder) or tuple(module for module in _MODULES["opencv"] if find_spec(module))
    return {module: str(import_module(module).__version__) for module in modules}
