"""In every step, the loop returns the memory that PyTorch caches to the driver."""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, width = (200, 4096) if device == "cuda" else (20, 16)

model = torch.nn.Linear(width, width).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(1024, width, device=device)
for _ in range(steps):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
