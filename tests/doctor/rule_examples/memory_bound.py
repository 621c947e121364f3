"""The optimizer updates its states and the parameters in several passes over the memory."""

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
steps, width = (200, 10_000) if device == "cuda" else (20, 16)

model = torch.nn.Linear(width, width).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = torch.randn(8, width, device=device)
for _ in range(steps):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
