"""The facts that all brokers share: the store, the image of it, and the controller that changes it.

**Invariant:** a change is in the store before anything acts on it.
"""
