"""ControlNets and LoRAs beside a pipeline."""
