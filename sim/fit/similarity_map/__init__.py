"""`mezzotint calibrate scale`: where CLIP's similarities stand on an encoder's, fitted on a paper's FIFO caches."""
