"""The loop converts the same image to a tensor in every iteration."""

import numpy as np
import torch

data = np.random.rand(1000, 1000, 3).astype("float32")
for _ in range(200):
    tensor = torch.tensor(data)
    mean = tensor.mean()
