"""Where rows are. One format a file; `base` says what a source is."""
