"""Ready pipelines against plain Python, in batch and as streams."""
