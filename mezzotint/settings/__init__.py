"""Ranges, choices and assumptions of settings."""
