"""The room `tidelog.client`, file by file."""
