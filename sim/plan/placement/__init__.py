"""Which ControlNets should lie on which servers, and how many servers there should be."""
