"""`forebay probe`: measure the memory, disk, GPU link and kernel launches of this machine."""

import argparse
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from forebay.cli.console import print_json, report_progress, result_console
from forebay.core.ceilings import DeviceCeilings, Probe, RowSpeeds
from forebay.core.spec import format_nbytes
from forebay.measure.probe.measure import measure_machine

__all__ = ["add_arguments", "render", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fresh", action="store_true", help="measure again, even if a saved probe exists")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    cached = None if arguments.fresh else Probe.cached()
    with report_progress("measuring") as report:
        probe = cached or measure_machine(report=report)
    if arguments.json:
        print_json(probe.to_json())
    else:
        for part in render(probe, cached=cached is not None):
            result_console().print(part)
    if cached is None:  # save after printing: if the disk is full, the user still sees the results
        probe.save()
    return 0


def render(probe: Probe, *, cached: bool) -> Iterator[RenderableType]:
    """Yield the parts of the report: hardware, tables, and a list of failed measurements.

    If the probe is `cached`, the report says that these are saved results.
    """
    yield from _render_heading(probe, cached)
    yield Text("\nCopies in host memory, GB/s", style="bold")
    yield _make_copy_table(probe)
    yield Text("\nShuffled rows, GB/s, by row size in bytes", style="bold")
    yield _make_row_table(probe)
    if probe.device:
        yield Text("\nCopies over the link, GB/s", style="bold")
        yield _make_link_table(probe.device)
        yield Text("\nLatencies, microseconds", style="bold")
        yield _make_latency_table(probe.device)
    if probe.disk:
        yield Text(
            f"\nFile reads in {probe.disk.folder} {_put_in_parentheses(probe.disk.filesystem)}, GB/s", style="bold"
        )
        yield _make_two_column_table(("from disk", _format_gb_per_second(probe.disk.disk_bytes_per_second)),
                     ("from page cache", _format_gb_per_second(probe.disk.page_cache_bytes_per_second)))  # fmt: skip
    if probe.missing:
        yield Text("\nNot measured", style="bold")
        yield from (Text(line, style="yellow") for line in probe.missing)


def _render_heading(probe: Probe, cached: bool) -> Iterator[Text]:
    hardware, device = probe.hardware, probe.device
    yield Text(f"{hardware.cpu}, {hardware.cores} cores, {format_nbytes(hardware.memory_nbytes)}")
    if device:
        memory = f"{format_nbytes(device.free_nbytes)} of {format_nbytes(device.total_nbytes)} free"
        link = f", PCIe {device.pcie_generation} x{device.pcie_width}" if device.pcie_generation else ""
        driver = f", driver {hardware.driver_version}" if hardware.driver_version else ""
        yield Text(f"{device.name}, {memory}{link}{driver}")
    when = probe.measured_at.astimezone().strftime("%Y-%m-%d %H:%M")
    yield Text(f"Measured on {when} in {probe.seconds:.0f} s. Medians; 1 GB = 10^9 bytes.", style="dim")
    if cached:
        yield Text("These are saved results. Run `forebay probe --fresh` to measure again.", style="dim")


def _make_copy_table(probe: Probe) -> Table:
    table = _make_table("threads", *(str(copy.threads) for copy in probe.host.copies))
    table.add_row("memcpy", *(_format_gb_per_second(copy.bytes_per_second) for copy in probe.host.copies))
    return table


def _make_row_table(probe: Probe) -> Table:
    gathers = probe.host.gathers
    table = _make_table("", *(f"{point.row_nbytes:,}" for point in gathers[0].rows.points))
    for gather in gathers:
        table.add_row(f"CPU, {gather.threads} thread{'s' if gather.threads > 1 else ''}", *_format_speeds(gather.rows))
    if probe.device and probe.device.pull:
        table.add_row("GPU, kernel", *_format_speeds(probe.device.pull))
    if probe.device and probe.device.batched_copy:
        table.add_row("GPU, DMA per row", *_format_speeds(probe.device.batched_copy))
    return table


def _make_link_table(device: DeviceCeilings) -> Table:
    table = _make_table("", "page-locked", "pageable")
    table.add_row(
        "host to device",
        _format_gb_per_second(device.host_to_device_bytes_per_second),
        _format_gb_per_second(device.pageable_host_to_device_bytes_per_second),
    )
    table.add_row(
        "device to host",
        _format_gb_per_second(device.device_to_host_bytes_per_second),
        _format_gb_per_second(device.pageable_device_to_host_bytes_per_second),
    )
    table.add_row("both at once, total", _format_gb_per_second(device.both_ways_bytes_per_second), "")
    table.add_row("page-locking", _format_gb_per_second(device.page_lock_bytes_per_second), "")
    return table


def _make_latency_table(device: DeviceCeilings) -> Table:
    return _make_two_column_table(
        ("4 KiB to device, queued", _format_microseconds(device.small_copy_seconds)),
        ("4 bytes from device, with wait", _format_microseconds(device.readback_seconds)),
        ("empty kernel, queued", _format_microseconds(device.launch_seconds)),
        ("empty kernel, with wait", _format_microseconds(device.launch_and_wait_seconds)),
    )


def _make_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if position else "left", no_wrap=True)
    return table


def _make_two_column_table(*pairs: tuple[str, str]) -> Table:
    table = _make_table("", "")
    table.show_header = False
    for name, value in pairs:
        table.add_row(name, value)
    return table


def _format_speeds(speeds: RowSpeeds) -> Iterator[str]:
    return (_format_gb_per_second(point.bytes_per_second) for point in speeds.points)


def _format_gb_per_second(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return "-"
    return f"{bytes_per_second / 1e9:.1f}" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e9:.2f}"


def _format_microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _put_in_parentheses(text: str) -> str:
    return f"({text})" if text else ""
