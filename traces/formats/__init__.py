"""Readers of files in pieces: delimited text, JSON, Parquet, and cells of text."""
