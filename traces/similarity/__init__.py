"""Similarity of prompts and artifacts: sources of vectors, similarity maps, nearest-artifact search."""
