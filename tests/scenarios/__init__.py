"""Scripts with golden output: what is asked, step by step, and what comes of it."""
