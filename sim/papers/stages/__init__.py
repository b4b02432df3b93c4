"""Requests with ControlNets and LoRAs, simulated stage by stage and compared with Katz's logs."""
