"""Connect feeds to other packages: frameworks, Keras, trainers, monitoring tools and Ray Datasets."""
