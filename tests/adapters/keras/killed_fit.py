"""Fit with a backup until the process kills itself: `killed_fit.py FOLDER SAVE_FREQ STEP`.

`backup_cases.py` starts this script.
"""

import os
import signal
import sys

from tests.adapters.keras.backup_runs import StopAtStep, fit_with_backup


def kill(_step):
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    folder, save_freq, step = sys.argv[1:]
    fit_with_backup(folder, save_freq=int(save_freq), callbacks=[StopAtStep(int(step), kill)])
