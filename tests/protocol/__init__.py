"""The room `tidelog.protocol`, file by file."""
