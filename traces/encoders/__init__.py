"""Encoders of prompts and images, and the disk cache of their vectors."""
