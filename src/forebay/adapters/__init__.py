"""All code that imports a framework: hand-offs, uploads, read-back, Keras feeds and Ray Datasets."""
