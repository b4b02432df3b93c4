"""Reading, writing and naming of files and folders."""
