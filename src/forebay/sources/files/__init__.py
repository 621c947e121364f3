"""Code that file formats share: mapped files, many files as one source, caches of chunks."""
