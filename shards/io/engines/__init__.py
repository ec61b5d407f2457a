"""What runs the tasks of a parallel map: processes of this machine, or those of a Ray cluster."""
