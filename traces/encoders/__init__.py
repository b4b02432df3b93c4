"""Prompts and images as vectors, and what was encoded remembered on disk."""
