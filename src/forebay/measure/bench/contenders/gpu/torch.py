"""PyTorch: DataLoader in three configurations, and three contenders without a loader."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from forebay.measure.bench.contenders.torch import TorchBatchDataset, choose_rows
from forebay.measure.bench.data import make_array
from forebay.measure.bench.model import StartEpoch, Workload

__all__ = [
    "batched_data_loader",
    "data_loader",
    "index_and_pin",
    "prefetched_copies",
    "resident_rows",
    "sampled_data_loader",
]

PREFETCHED_COPIES = 4  # batches that `prefetched_copies` copies in advance


def data_loader(work: Workload) -> StartEpoch:
    """Load row by row with pinned memory and asynchronous copies, as in PyTorch's tutorial."""
    workers = int(work.options.get("workers", 0))
    loader = DataLoader(
        TensorDataset(torch.from_numpy(make_array(work))),
        batch_size=work.batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=workers > 0,
    )

    def epoch() -> Iterator[Any]:
        for (batch,) in loader:
            yield batch.to("cuda", non_blocking=True)

    return epoch


def batched_data_loader(work: Workload) -> StartEpoch:
    """Load each batch with one indexing operation in worker processes, as experts do."""
    return _load_batches(work, RandomSampler(range(work.rows)))


def sampled_data_loader(work: Workload) -> StartEpoch:
    """Load half of the rows, or rows drawn by weight, in worker processes."""
    return _load_batches(work, choose_rows(work))


def _load_batches(work: Workload, rows: Any) -> StartEpoch:
    workers = int(work.options.get("workers", 0))
    loader = DataLoader(
        TorchBatchDataset(work),
        sampler=BatchSampler(rows, work.batch, drop_last=False),
        batch_size=None,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=workers > 0,
    )

    def epoch() -> Iterator[Any]:
        for batch in loader:
            yield batch.to("cuda", non_blocking=True)

    return epoch


def index_and_pin(work: Workload) -> StartEpoch:
    """Gather each batch with one indexing operation, page-lock it, and copy it asynchronously."""
    rows = torch.from_numpy(make_array(work))

    def epoch() -> Iterator[Any]:
        for indices in torch.randperm(work.rows).split(work.batch):
            yield rows[indices].pin_memory().to("cuda", non_blocking=True)

    return epoch


def resident_rows(work: Workload) -> StartEpoch:
    """Keep all rows on the GPU, and select each batch there."""
    rows = torch.from_numpy(make_array(work)).to("cuda")

    def epoch() -> Iterator[Any]:
        for indices in torch.randperm(work.rows, device="cuda").split(work.batch):
            yield rows.index_select(0, indices)

    return epoch


def prefetched_copies(work: Workload) -> StartEpoch:
    """Copy whole batches of page-locked memory in advance, without a shuffle.

    This shows how much the copies slow a training step. Every loader that copies the same number of bytes slows the
    step at least as much.
    """
    rows = torch.from_numpy(make_array(work))
    # If this failed, copies of pageable memory would be measured. The page-lock ends with the process.
    torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(rows.data_ptr(), rows.nbytes, 0))
    shape = (work.batch, *work.shape)
    buffers = [torch.empty(shape, dtype=rows.dtype, device="cuda") for _ in range(PREFETCHED_COPIES + 1)]
    used_events, arrived_events = ([torch.cuda.Event() for _ in buffers] for _ in range(2))
    copy_stream = torch.cuda.Stream()

    def send(number: int) -> None:
        """Queue the copy of a batch, behind all work on its buffer's previous batch."""
        index, start = number % len(buffers), number * work.batch
        with torch.cuda.stream(copy_stream):
            copy_stream.wait_event(used_events[index])
            buffers[index].copy_(rows[start : start + work.batch], non_blocking=True)
            arrived_events[index].record()

    def epoch() -> Iterator[Any]:
        full_batches = work.rows // work.batch
        for number in range(min(PREFETCHED_COPIES, full_batches)):
            send(number)
        for number in range(full_batches):
            torch.cuda.current_stream().wait_event(arrived_events[number % len(buffers)])
            yield buffers[number % len(buffers)]
            used_events[number % len(buffers)].record()
            if number + PREFETCHED_COPIES < full_batches:
                send(number + PREFETCHED_COPIES)

    return epoch
