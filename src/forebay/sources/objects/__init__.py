"""Sources in an object store, read in byte ranges.

Forebay lists objects once and prefetches large byte ranges. It caches ranges, retries failed requests and verifies
every response.

    URL -> ObjectStore.list_objects -> StoredObject        size, version and checksum of each object
    rows -> RangePlanner.ranges_for_rows -> RangeSet       which byte ranges to read: whole blocks, or only the rows
    ByteRange -> RangeReader.hold -> cache or store        each range is read once, also if several groups need it
    upcoming rows -> Prefetcher                            reads the ranges of upcoming groups in the background

A store is anything that fsspec opens: s3, gcs, http, abfs, sftp, a local folder. A cache tier never evicts: it takes
blocks until its budget is used up, and later blocks are not cached.
"""
