"""Run the code cells of a notebook in IPython: python -m tests.examples.run_notebook FILE.

IPython itself can run notebooks too, but it ends with exit status 0 if a cell fails.
"""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

if __name__ == "__main__":
    shell = InteractiveShell.instance()
    for number, cell in enumerate(json.loads(Path(sys.argv[1]).read_text())["cells"]):
        if cell["cell_type"] == "code":
            done = shell.run_cell("".join(cell["source"]), store_history=True)
            if not done.success:
                sys.exit(f"cell {number} failed.")
