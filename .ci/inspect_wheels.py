"""Compare the C library in each wheel with the platform in the name of the wheel.

    python .ci/inspect_wheels.py WHEEL...

A pure wheel must not have the library. In other wheels, the library must be for the architecture of the name, need only
libc, and use no symbol of a glibc that is newer than the name promises.
"""

import io
import re
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

LIBRARY = "forebay/doctor/capture/device/buffers.so"
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def inspect(path: Path) -> str:
    """Return a description of the library; raise AssertionError if it does not fit the wheel."""
    with zipfile.ZipFile(path) as wheel:
        has_library = LIBRARY in wheel.namelist()
        tag = path.stem.rpartition("-")[2]
        assert has_library == (tag != "any"), f"{path.name}: the library is {'' if has_library else 'not '}there."
        if not has_library:
            return "no C library"
        library = ELFFile(io.BytesIO(wheel.read(LIBRARY)))
    major, minor, architecture = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag).groups()
    needed = [each.needed for each in library.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    versions = glibc_versions(library)
    assert library["e_machine"] == MACHINES[architecture], library["e_machine"]
    assert needed == ["libc.so.6"], needed
    assert max(versions) <= (int(major), int(minor)), versions
    newest = ".".join(map(str, max(versions)))
    return f"C library for {library['e_machine']}, needs libc.so.6 with glibc {newest}"


def glibc_versions(library: ELFFile) -> list[tuple[int, ...]]:
    """Return the versions of glibc whose symbols the library uses."""
    sections = [each for each in library.iter_sections() if isinstance(each, GNUVerNeedSection)]
    names = [version.name for section in sections for _, versions in section.iter_versions() for version in versions]
    return [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{Path(name).name}: {inspect(Path(name))}")
