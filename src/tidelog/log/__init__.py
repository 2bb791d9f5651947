"""One partition on disk: segments, indexes, epochs, producers, transactions, recovery.

**Invariant:** knows nothing of leaders, clients or sockets; time is an argument.
"""
