"""`mezzotint reproduce hardware`: published runs of real machines, replayed and compared with the measurements."""
