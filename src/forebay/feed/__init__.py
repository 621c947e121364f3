"""The running feed: build, runner, ring, slots, slot fillers and transform stages."""
