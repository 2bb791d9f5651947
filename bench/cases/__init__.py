"""The questions: each file asks one kind and returns rows for the report."""
