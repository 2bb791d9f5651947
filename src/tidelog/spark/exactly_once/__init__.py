"""Exactly once: the tasks of a micro-batch write in transactions and leave them open; the driver decides.

`tasks` is a task's part, `decider` the driver's. `marker` is what the driver has decided, kept as an offset
of a group; `offset_file` identifies a micro-batch by Spark's own record of it; `stops` has the messages.

**Invariant:** nothing here imports pyspark.
"""
