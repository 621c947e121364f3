"""Make `distributed/ddp-tutorial-series/multinode.py` of pytorch/examples run offline.

The script makes its own rows. It runs as the only process of torchrun, with more epochs.

Without a GPU, the model and the rows stay on the CPU, and Gloo takes the place of NCCL.
"""

from pathlib import Path

from tests.wild.edits import set_literal, wrap_call
from tests.wild.made_up import write_module

ARGUMENTS: list[str] = ["600", "100"]  # epochs, and epochs between two snapshots
ENVIRONMENT: dict[str, str] = {
    "LOCAL_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29517",
}
SETTINGS: dict[str, str] = {}
STEP: int | str = 58  # line of the loop or function whose body is one step
CHANGES = [
    wrap_call("ddp_setup", '__import__("without_gpu") and ', ""),
    set_literal("nccl", '__import__("without_gpu").BACKEND'),
]
# (path in the repository, path in the folder in which the script runs)
FILES: list[tuple[str, str]] = [("distributed/ddp-tutorial-series/datautils.py", "datautils.py")]
WITHOUT_GPU = '''
    """Let a script for GPUs run on the CPU where there is no GPU."""

    import torch
    from torch.nn.parallel import DistributedDataParallel


    def staying(to):
        return lambda self, device, *more, **options: (
            self if isinstance(device, int) else to(self, device, *more, **options)
        )


    def without_devices(start):
        return lambda self, module, device_ids=None, **options: start(self, module, **options)


    BACKEND = "nccl"
    if not torch.cuda.is_available():
        BACKEND = "gloo"
        torch.cuda.set_device = lambda device: None
        torch.Tensor.to = staying(torch.Tensor.to)
        torch.nn.Module.to = staying(torch.nn.Module.to)
        DistributedDataParallel.__init__ = without_devices(DistributedDataParallel.__init__)
'''


def prepare(folder: Path) -> None:
    write_module(folder, "without_gpu", WITHOUT_GPU)
