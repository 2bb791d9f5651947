"""The room `tidelog.spark`, file by file."""
