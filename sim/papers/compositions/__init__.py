"""Designs that nobody has run, each beside the parts that it is made of."""
