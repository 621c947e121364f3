"""Kernels, compiled for the GPU at hand from the source files beside this one."""

from importlib.resources import files
from typing import Any

from cuda.bindings import nvrtc

from forebay.errors import DeviceError

__all__ = ["compile_kernels"]


def compile_kernels(source: str, architecture: str) -> bytes:
    """Machine code of one file, for compute capability 90 and the like."""
    text = files("forebay.engines.cuda").joinpath(source).read_bytes()
    program = _checked(nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], []))[0]
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))[0]
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError(f"{source} does not compile for sm_{architecture}: {log.decode(errors='replace')}")
    image: bytes = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))[0]
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    nvrtc.nvrtcDestroyProgram(program)
    return image


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"the CUDA run-time compiler failed: {result[0].name}.")
    return result[1:]
