"""Everything that imports a framework: hand-off, upload, readback, Keras and Ray datasets."""
