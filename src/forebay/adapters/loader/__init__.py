"""A feed as a PyTorch DataLoader, for trainers."""
