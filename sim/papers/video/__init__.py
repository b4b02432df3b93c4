"""`mezzotint reproduce video`: logged runs of video requests on NPUs, replayed and compared request by request."""
