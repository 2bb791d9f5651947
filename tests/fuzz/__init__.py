"""Coverage-guided fuzzing with atheris: `make fuzz`, shorter with `make fuzz FUZZ_RUNS=100000`.

`targets` says what is fuzzed; `seeds/` is what each begins with, made by `python -m tests.fuzz.seeds`; what
broke something once is in `crashes/<target>/`. Every ordinary test run tries all of both again.
"""
