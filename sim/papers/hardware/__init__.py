"""`mezzotint scorecard hardware`: published runs of real machines, replayed and held against what was measured."""
