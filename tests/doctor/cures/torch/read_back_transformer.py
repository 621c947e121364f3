"""The loop waits for the gradient norm of every step before NumPy prepares new tokens."""

import numpy as np
import torch
from stopwatch import Stopwatch
from torch import nn

torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
steps, batch_rows, length, width = (400, 256, 256, 256) if device == "cuda" else (40, 8, 32, 32)
words = 32_000 if device == "cuda" else 1000

generator = np.random.default_rng(0)
corpus = generator.integers(0, words, 4_000_000)
frequency = generator.dirichlet(np.ones(words))
layers = [nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(2)]
model = nn.Sequential(nn.Embedding(words, width), *layers, nn.Linear(width, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def send(array):
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device == "cuda" else tensor


norms = []
stopwatch = Stopwatch(torch.cuda.synchronize if device == "cuda" else None)
for _ in range(steps):
    starts = generator.integers(0, len(corpus) - length, batch_rows)
    tokens = corpus[starts[:, None] + np.arange(length)]
    replaced = generator.random(tokens.shape, dtype="float32") < 0.15
    tokens[replaced] = generator.choice(words, replaced.sum(), p=frequency)
    logits = model(send(tokens)).squeeze(2)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, send(replaced.astype("float32")))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norms.append(norm.item())
    optimizer.step()
    stopwatch.lap()
stopwatch.print_step_time()
