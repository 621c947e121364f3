"""Make `tutorial-contents/502_GPU.py` of MorvanZhou/PyTorch-Tutorial run offline.

Random grey images in place of MNIST, a sixth of the original number. Without a GPU, `cuda` changes nothing.
"""

from pathlib import Path

from tests.wild.edits import wrap_value
from tests.wild.made_up import write_digits, write_module

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, str] = {}
STEP: int | str = 55  # line of the loop or function whose body is one step
CHANGES = [wrap_value("DOWNLOAD_MNIST", '__import__("without_gpu") and ', "")]
WITHOUT_GPU = '''
    """Let `cuda` return a tensor or a model as it is where there is no GPU."""

    import torch


    def stay(self, *arguments, **options):
        return self


    if not torch.cuda.is_available():
        torch.Tensor.cuda = torch.nn.Module.cuda = stay
'''


def prepare(folder: Path) -> None:
    write_module(folder, "without_gpu", WITHOUT_GPU)
    write_digits(folder / "mnist" / "MNIST" / "raw", 10_000, 2000)
