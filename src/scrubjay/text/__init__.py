"""Pure functions on text: words to search by, language, cleaning, segments, token estimates.

Nothing here keeps state a caller can see, reads a file or talks to a network, and importing a
module of this package loads no dictionary: the heavy libraries come with the first text that
needs them.
"""
