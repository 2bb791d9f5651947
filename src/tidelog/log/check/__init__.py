"""The checker: what is wrong in the files of a log directory, and what a broker would do about each.

**Invariant:** reads only, through a folder that cannot be written; prints nothing, and needs no broker.
"""
