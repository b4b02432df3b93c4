"""The canonical table of requests: its columns and rules, how it is made of a source, written and read."""
