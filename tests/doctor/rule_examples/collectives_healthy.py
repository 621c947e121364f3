"""Every fourth iteration sends the gradients of four batches. Run the script with `torchrun --nproc-per-node 2`."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend, device = ("nccl", f"cuda:{os.environ['LOCAL_RANK']}") if torch.cuda.is_available() else ("gloo", "cpu")
width = 4096 if backend == "nccl" else 16

dist.init_process_group(backend)
model = DistributedDataParallel(torch.nn.Linear(width, width).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, width, device=device)
for step in range(200):
    is_last = step % 4 == 3
    with nullcontext() if is_last else model.no_sync():
        loss = model(batch).square().mean() / 4
        loss.backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
