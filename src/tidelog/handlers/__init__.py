"""One function per API, one file per family, one table that lists them all.

**Invariant:** a handler checks its input in full before it changes anything.
"""
