"""One round of compaction on the files of a partition: sealed segments in, `.cleaned` files out.

**Invariant:** a round changes no file that was there before, and never gives damaged bytes a new checksum.
"""
