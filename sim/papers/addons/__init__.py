"""Studies of add-ons: loads of caches, routing by add-on, placement of ControlNets."""
