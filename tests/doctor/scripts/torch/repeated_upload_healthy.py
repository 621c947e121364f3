"""The image is made into a tensor once."""

import numpy as np
import torch

data = np.random.rand(1000, 1000, 3).astype("float32")
tensor = torch.tensor(data)
for _ in range(200):
    mean = tensor.mean()
