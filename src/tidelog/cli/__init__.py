"""The `tidelog` command: nouns and verbs for people.

**Invariant:** a bad word gets one line that names it and the fix, and exit code 2; never a traceback.
"""
