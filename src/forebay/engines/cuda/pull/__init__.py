"""Pull: the device reads rows from host memory by itself, or keeps them resident."""
