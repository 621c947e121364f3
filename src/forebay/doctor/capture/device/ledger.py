"""The device ledger of a watch: recorded where there is a device and CUPTI lets us; said in words where not."""

from pathlib import Path

from forebay.doctor.capture.device.activity import Activity
from forebay.doctor.capture.device.others import profiler_at_work
from forebay.doctor.recorded import Recorded
from forebay.errors import DeviceError

__all__ = ["DeviceLedger"]


class DeviceLedger:
    """Started and stopped once; what goes wrong is a note, never the script's trouble."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._activity: Activity | None = None
        self.recorded: Recorded | None = None

    def start(self) -> bool:
        """Whether the device is recorded from now on."""
        if not _uses_a_device():
            return False
        other = profiler_at_work()
        if other is not None:
            self._notes.append(f"what the GPU does is not seen: {other} records it, and CUPTI serves one at a time.")
            return False
        try:
            activity = Activity()
            activity.start()
        except (DeviceError, OSError) as error:
            self._notes.append(f"what the GPU does is not seen: {error}")
            return False
        self._activity = activity
        return True

    def stop(self) -> None:
        activity, self._activity = self._activity, None
        if activity is None:
            return
        try:
            self.recorded = activity.stop()
        except DeviceError as error:
            self._notes.append(f"what the GPU did was lost: {error}")
            return
        if self.recorded.dropped:
            self._notes.append(f"{self.recorded.dropped} records of the GPU found no room and were dropped.")


def _uses_a_device() -> bool:
    """Whether this process has loaded the driver."""
    maps = Path("/proc/self/maps")
    return maps.is_file() and "libcuda.so" in maps.read_text()
