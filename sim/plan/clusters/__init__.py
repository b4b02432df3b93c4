"""Plan a deployment: the cheapest clusters, over designs and kinds of GPUs, that meet latency targets."""
