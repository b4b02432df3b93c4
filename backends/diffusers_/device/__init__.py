"""The device at hand: its memory, its clock, what is resident on it."""
