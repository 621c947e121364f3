"""A probe of a made-up machine."""

from datetime import UTC, datetime

from forebay.core.ceilings import (
    CopySpeed,
    DeviceCeilings,
    DiskCeilings,
    HostCeilings,
    HostGather,
    Probe,
    RowSpeed,
    RowSpeeds,
)
from forebay.core.hardware import Hardware

SPEEDS = RowSpeeds((RowSpeed(64, 1e9), RowSpeed(400, 4e9), RowSpeed(4096, 9e9)))
HOST = HostCeilings(
    copies=(CopySpeed(1, 8e9), CopySpeed(2, 12e9), CopySpeed(4, 20e9)),
    gathers=(HostGather(1, SPEEDS), HostGather(4, RowSpeeds((RowSpeed(64, 3e9), RowSpeed(4096, 21e9))))),
)
DEVICE = DeviceCeilings("GPU", 1, 2, 5, None, 5e10, 5e10, 9e10, 8e9, 1e10, 1e10, 5e-6, 1e-5, None, 7e-6, SPEEDS, None)
MACHINE = Hardware("CPU", 4, 8 << 30, ("GPU",), "580.1")
PROBE = Probe(
    MACHINE, datetime(2026, 7, 30, tzinfo=UTC), 9.5, HOST, DiskCeilings("/tmp", "ext4", None, 9e9), DEVICE, ()
)


def refuse(*_, **__):
    raise AssertionError("the code called a function that the test forbids")
