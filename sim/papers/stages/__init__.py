"""Settings of ControlNets and LoRAs, simulated stage by stage beside Katz's logs."""
