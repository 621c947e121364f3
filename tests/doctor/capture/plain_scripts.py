"""Scripts whose output shows how they run: names, streams, exit handlers, threads, processes and signals."""

NAMES = """
import builtins, multiprocessing, sys
print(sorted(globals()))
print(__name__, __file__, __package__, getattr(__spec__, 'name', None), __doc__, __cached__, type(__loader__).__name__)
print(__builtins__ is builtins, sys.argv, sys.path[0], sys.orig_argv[1:])
print(sys.modules["__main__"] is sys.modules["__mp_main__"], vars(sys.modules["__main__"]) is globals())
"""
SPAWN_POOL = """
import multiprocessing
class Row:
    def __init__(self, value): self.value = value
def double(row): return Row(2 * row.value)
if __name__ == "__main__":
    with multiprocessing.get_context("METHOD").Pool(1) as pool:
        print([row.value for row in pool.map(double, [Row(1), Row(2)])], flush=True)
"""
EXECUTOR = """
import dataclasses, multiprocessing
from concurrent.futures import ProcessPoolExecutor
@dataclasses.dataclass
class Row: value: int
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("METHOD")) as pool:
        print(list(pool.map(Row, range(3))), flush=True)
"""
HOOK = """
import sys, traceback
def hook(kind, error, trace):
    print("hook", kind.__name__, error, error.__traceback__ is trace, sys.last_value is error)
    traceback.print_tb(trace)
sys.excepthook = hook
def train(): ERROR
train()
"""
BROKEN_HOOK = """
import sys
def hook(kind, error, trace): raise KeyError("hook")
sys.excepthook = hook
raise ValueError("row")
"""
CHAINED = """
def read(): {}["rows"]
try:
    read()
except KeyError as error:
    raise RuntimeError("no rows") from error
"""
EXIT_PICKLE = """
import atexit, pickle, sys
class Model: pass
@atexit.register
def save(): print(type(pickle.loads(pickle.dumps(Model()))) is Model, sys.argv, __name__, flush=True)
"""
THREAD = """
import pickle, threading, time
class Model: pass
def work():
    time.sleep(0.4)
    print(type(pickle.loads(pickle.dumps(Model()))).__name__, RESULT, flush=True)
threading.Thread(target=work).start()
RESULT = "global"
print("main is done", flush=True)
"""
REDIRECTED = """
import atexit, sys
sys.stdout = open("log.txt", "w")
print("first")
@atexit.register
def last():
    print("last")
    sys.stdout.flush()
    sys.__stdout__.write(open("log.txt").read())
"""
UNENCODABLE = """
import sys
sys.stdout.reconfigure(encoding="ascii")
print("\\N{SNOWMAN}")
"""
FORKED = """
import os, sys
child = os.fork()
if child == 0:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
OWN_SIGTERM = """
import os, signal
signal.signal(signal.SIGTERM, lambda number, frame: print("saved", flush=True))
os.kill(os.getpid(), signal.SIGTERM)
print("continues")
"""
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    print("not reached")
except KeyboardInterrupt:
    print("interrupted")
"""

# Name -> text of a script that Python ends with exit code 0.
SUCCEED = {
    "names": NAMES,
    "spawn": SPAWN_POOL.replace("METHOD", "spawn"),
    "forkserver": SPAWN_POOL.replace("METHOD", "forkserver"),
    "fork": SPAWN_POOL.replace("METHOD", "fork"),
    "spawn executor": EXECUTOR.replace("METHOD", "spawn"),
    "forkserver executor": EXECUTOR.replace("METHOD", "forkserver"),
    "pickle at exit": EXIT_PICKLE,
    "a thread that outlives the script": THREAD,
    "redirected output": REDIRECTED,
    "a forked child": FORKED,
    "its own SIGTERM handler": OWN_SIGTERM,
    "a handled interrupt": INTERRUPTED,
    "exit without a code": "import sys\nprint('before')\nsys.exit()\n",
    "a warning": "import warnings\nwarnings.warn('slow', DeprecationWarning)\n",
    "annotations": "rate: float = 0.1\nprint(__annotations__)\n",
    "source in another encoding": "# coding: latin-1\nprint('\xe9' == chr(233), len('\xe9'))\n",
    "closed output": "import os\nprint('before', flush=True)\nos.close(1)\n",
    "closed errors": "import os\nos.close(2)\nprint('after')\n",
    "wide output": "print('x' * 500)\n",
}
# Name -> text of a script that fails.
FAIL = {
    "an exception": CHAINED,
    "a hook": HOOK.replace("ERROR", "raise ValueError('row 7')"),
    "a hook for an interrupt": HOOK.replace("ERROR", "raise KeyboardInterrupt"),
    "a broken hook": BROKEN_HOOK,
    "a syntax error": "print('never')\ndef broken(:\n",
    "an exit code": "import sys\nsys.exit(3)\n",
    "an exit message": "import sys\nsys.exit('no data')\n",
    "an exit value": "raise SystemExit(('no', 'data'))\n",
    "a relative import": "from . import neighbour\n",
    "text that cannot be encoded": UNENCODABLE,
    "an exit handler that pickles after an exception": EXIT_PICKLE + "raise ValueError('late')\n",
}
