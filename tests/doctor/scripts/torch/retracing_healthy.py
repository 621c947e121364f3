"""The loop pads all sentences to one length, so torch.compile compiles the function once."""

import random

import torch

LONGEST = 108
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lengths = random.sample(range(8, LONGEST), 24)


@torch.compile(backend="eager", dynamic=False)
def loss_of(sentence):
    return model(sentence).square().mean()


for length in lengths:
    padded = torch.nn.functional.pad(torch.rand(length, 16), (0, 0, 0, LONGEST - length))
    loss = loss_of(padded)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
