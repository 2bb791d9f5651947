"""The shell around the broker: sockets, threads, signals, the real disk and the real stores.

**Invariant:** decides nothing about data; it moves bytes and runs the effects the broker asks for.
"""
