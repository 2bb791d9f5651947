"""Coverage-guided fuzzing with atheris: `make fuzz`, or `python -m tests.fuzz --seconds 600`.

`seeds/<target>-*.bin` are what it begins with; what broke something once is in `crashes/<target>-*.bin`
and is tried again by every ordinary test run.
"""
