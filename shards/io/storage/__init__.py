"""Objects behind ``s3://``, ``gs://`` and ``az://``: list, read by bounded ranges, write, clean up.

`clients` knows the services, `objects` reads and writes single objects, `ranges` many ranges of one, `uploads` large
objects part by part. http(s) and ``pipe:`` are `shards.io.remote`'s.
"""
