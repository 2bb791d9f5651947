"""What the operator sees of a server: metrics and health over HTTP, and the log.

**Invariant:** watches and changes nothing; numbers are made when somebody asks for them.
"""
