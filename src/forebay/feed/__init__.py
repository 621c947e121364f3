"""The running feed: build, runner, ring, slots, fillers and transform stages."""
