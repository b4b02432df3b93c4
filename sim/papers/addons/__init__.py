"""Add-ons at large: what caches load, where ControlNets should run, where requests should go."""
