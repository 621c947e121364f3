"""The device computes the norm of the gradient. The loop reads back only the norm."""

import torch
from stopwatch import Stopwatch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, length, width = (2500, 512, 16, 1024) if device == "cuda" else (60, 8, 8, 128)

torch.manual_seed(0)
speech = torch.randn(8, batch_rows, length, width, device=device)
model, last = nn.GRU(width, width, batch_first=True).to(device), nn.Linear(width, 1).to(device)
optimizer = torch.optim.SGD([*model.parameters(), *last.parameters()], lr=1e-2)

norms = []
stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for step in range(steps):
    heard, _ = model(speech[step % len(speech)])
    loss = (last(heard[:, -1]) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.linalg.vector_norm(model.weight_hh_l0.grad, dtype=torch.float64).item())
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
