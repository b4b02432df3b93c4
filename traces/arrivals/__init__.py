"""When requests arrive: the trace's own clock, or a process put in its place; one file for each."""
