"""Functions of the CUDA runtime, with CUDA's names, for one device with 8 GiB of free memory."""
# ruff: noqa: N802

from cupy.cuda.device import QUEUE


def getDeviceCount():
    return 1


def memGetInfo():
    return 8 << 30, 8 << 30


def deviceSynchronize():
    QUEUE.wait()


def streamSynchronize(ptr):
    QUEUE.wait()
