"""Objects in a store: listed once, read in large ranges ahead of need, kept in tiers, retried and checked.

    url -> Store.listing -> StoredObject          what is there: bytes, version, checksum
    rows -> Grid.cut -> Piece                  which ranges to read: whole blocks, or only the rows
    Piece -> Reader.hold -> tier | Store.read  each range once, however many groups wait for it
    coming rows -> Foresight                   the order is known, so ranges are on their way before they are needed

A store is whatever fsspec opens: s3, gcs, http, abfs, sftp, a local folder. A tier never evicts: it takes blocks until
its budget is spent, and then reads go past it.
"""
