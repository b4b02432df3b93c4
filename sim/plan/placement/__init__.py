"""Placement of ControlNets on servers, and the number of servers."""
