"""The versions of the libraries that decode images, for the keys of row caches.

Another version of a library may decode an image to other pixels.
"""

from contextlib import suppress

from forebay.sources.formats.pixel_resize import load_resize

__all__ = ["decoder_versions"]


def decoder_versions(decoder: str) -> dict[str, str]:
    """Return the version of each module that a decoder uses. "auto" may use any module.

    >>> sorted(decoder_versions("pillow"))
    ['PIL']
    """
    import PIL

    versions = {"PIL": str(PIL.__version__)}  # Pillow decodes the images that other libraries refuse
    if decoder != "pillow":
        with suppress(ImportError):
            import simplejpeg

            versions["simplejpeg"] = str(simplejpeg.__version__)
            versions["resize_pixels"] = "missing" if load_resize() is None else "1"
    if decoder not in ("pillow", "simplejpeg"):
        with suppress(ImportError):
            import cv2

            versions["cv2"] = str(cv2.__version__)
    return versions
