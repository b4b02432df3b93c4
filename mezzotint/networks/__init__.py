"""Networks of others that traces and backends run."""
