"""The state shared by all brokers: the store, its image, and the decisions of the controller.

**Invariant:** a change is in the store before anything acts on it.
"""
