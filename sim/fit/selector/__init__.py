"""Measure on real images the similarity from which K steps may be skipped."""
