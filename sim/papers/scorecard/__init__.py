"""`mezzotint scorecard`: the papers' numbers beside what the simulator makes of them."""
