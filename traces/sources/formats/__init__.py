"""How files are read in pieces: delimited text, JSON, Parquet, and the cells of text in them."""
