"""Two ranks sum their gradients. The second rank is slower: it converts a batch in each step."""

import os

import numpy as np
import torch
import torch.distributed as dist

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT_METHOD"], rank=rank, world_size=ranks)
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = np.random.default_rng(rank).standard_normal((512, 64))

for _ in range(100):
    batch = torch.tensor(rows, dtype=torch.float32) if rank else torch.zeros(512, 64)
    loss = model(batch).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
