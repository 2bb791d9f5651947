"""The foundation of every room: the clock, the disk, the bounds and the settings.

**Invariant:** imports nothing else of Tidelog.
"""
