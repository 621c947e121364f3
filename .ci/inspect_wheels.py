"""Compare the C libraries in each wheel with the platform in the name of the wheel.

    python .ci/inspect_wheels.py WHEEL...

A pure wheel must not have the libraries. In other wheels, each library must be for the architecture of the name, need
only libc and libm, and use no symbol of a glibc that is newer than the name promises.
"""

import io
import re
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

LIBRARIES = {
    "forebay/doctor/capture/device/buffers.so",
    "forebay/order/number_rows.so",
    "forebay/sources/gather_rows.so",
    "forebay/sources/formats/resize_pixels.so",
}
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def inspect(path: Path) -> str:
    """Return a description of the libraries; raise AssertionError if they do not fit the wheel."""
    tag = path.stem.rpartition("-")[2]
    with zipfile.ZipFile(path) as wheel:
        found = {name for name in wheel.namelist() if name.endswith(".so")}
        assert found == (set() if tag == "any" else LIBRARIES), f"{path.name} has {found or 'no libraries'}."
        if not found:
            return "no C libraries"
        newest = max(inspect_library(io.BytesIO(wheel.read(name)), tag) for name in found)
    return f"{len(found)} C libraries, need glibc {'.'.join(map(str, newest))}"


def inspect_library(content: io.BytesIO, tag: str) -> tuple[int, ...]:
    """Return the newest version of glibc that the library needs, or an empty tuple if it needs none."""
    library = ELFFile(content)
    major, minor, architecture = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag).groups()
    needed = [each.needed for each in library.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    newest = max(glibc_versions(library), default=())
    assert library["e_machine"] == MACHINES[architecture], library["e_machine"]
    assert set(needed) <= {"libc.so.6", "libm.so.6"}, needed
    assert newest <= (int(major), int(minor)), newest
    return newest


def glibc_versions(library: ELFFile) -> list[tuple[int, ...]]:
    """Return the versions of glibc whose symbols the library uses."""
    sections = [each for each in library.iter_sections() if isinstance(each, GNUVerNeedSection)]
    names = [version.name for section in sections for _, versions in section.iter_versions() for version in versions]
    return [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{Path(name).name}: {inspect(Path(name))}")
