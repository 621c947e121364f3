"""Sources and streams: arrays, items, files of many formats, object stores, generators."""
