"""What a service's own log says about the seconds that generation takes."""
