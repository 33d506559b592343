"""Grids, the runner and the run store: the only place where decoding meets profiling."""
