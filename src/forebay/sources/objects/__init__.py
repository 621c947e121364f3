"""Sources of rows in an object store, which Forebay reads in byte ranges.

Forebay lists the objects once and prefetches large byte ranges. It caches blocks, retries failed requests and verifies
the length and the version of every response. A block is a byte range of at most 8 MiB (more only if a single row is
longer), or a whole object of at most 8 MiB.

    URL -> ObjectStore.list_objects -> StoredObject        size, version and checksum of each object
    rows -> RangePlanner.ranges_for_rows -> RangeSet       the byte ranges to read: whole blocks or runs of rows
    ByteRange -> RangeReader.hold -> cache or store        groups that need the same range share one read
    upcoming rows -> Prefetcher                            reads the ranges of upcoming groups in the background

fsspec opens the store: s3, gcs, http, abfs, sftp or a local folder. A cache tier stores blocks until its budget is used
up. After that it stores no more, because it never evicts a block.
"""
