"""Profiles all scripts of one framework, applies the cures that the doctor offers for them, and runs the results.

python -m tests.doctor.run_scripts torch FOLDER

One process does both, because importing a framework takes seconds. The results are in FOLDER.
"""

import sys
from pathlib import Path

from tests.doctor.run_cured import run_cures
from tests.doctor.watch_scripts import save_captures

if __name__ == "__main__":
    framework, folder = sys.argv[1], Path(sys.argv[2])
    save_captures(framework, folder)
    run_cures(framework, folder)
