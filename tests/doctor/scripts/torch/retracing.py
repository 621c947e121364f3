"""Sentences have different lengths, and torch.compile recompiles the function for each length."""

import random

import torch

torch._dynamo.config.recompile_limit = 32  # by default, torch.compile gives up after 8 recompilations and runs eagerly
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lengths = random.sample(range(8, 108), 24)


@torch.compile(backend="eager", dynamic=False)
def loss_of(sentence):
    return model(sentence).square().mean()


for length in lengths:
    loss = loss_of(torch.rand(length, 16))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
