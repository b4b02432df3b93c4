"""What finished runs say: the report's tables and figures."""
