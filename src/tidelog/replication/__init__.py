"""A partition's role: who may append, what is committed, what readers may see.

**Invariant:** a record below the high watermark is never taken back.
"""
