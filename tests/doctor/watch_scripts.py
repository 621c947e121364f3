"""Runs all scripts of one framework under watch, in one process, and keeps a capture of each.

python -m tests.doctor.watch_scripts torch FOLDER
"""

import sys
from pathlib import Path

from forebay.doctor.capture.script import run_script
from forebay.doctor.capture.session import Session
from forebay.doctor.captured import Capture

SCRIPTS = Path(__file__).parent / "scripts"


def watch_script(path: Path) -> Capture:
    session = Session()
    session.start()
    try:
        ended = run_script(str(path), ())
    finally:
        session.stop()
    return session.capture(path.name, ended=ended)


if __name__ == "__main__":
    framework, folder = sys.argv[1:]
    for script in sorted((SCRIPTS / framework).glob("*.py")):
        watch_script(script).save(Path(folder) / f"{script.stem}.capture")
