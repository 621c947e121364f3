"""Every step sends all gradients in float32. Run the script with `torchrun --nproc-per-node 2 collectives.py`."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend, device = ("nccl", f"cuda:{os.environ['LOCAL_RANK']}") if torch.cuda.is_available() else ("gloo", "cpu")
width = 4096 if backend == "nccl" else 16

dist.init_process_group(backend)
model = DistributedDataParallel(torch.nn.Linear(width, width).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, width, device=device)
for _ in range(200):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
