"""One partition's searchable form: a tail of recent rows and sealed segments.

`words` packs a memory's words; `segments` is the sealed form as bytes; `partition` is the form
in RAM; `cache` keeps the hot ones within a bound; `compact` seals and merges; `scan` is the
int8 kernel. Ranking reads these and is the same on every store.
"""
