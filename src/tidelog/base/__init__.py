"""What every room stands on: the clock, the disk, the bounds and the settings.

**Invariant:** imports nothing else of Tidelog.
"""
