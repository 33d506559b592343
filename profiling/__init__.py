"""Recording a loop under JAX's profiler, reading device time back out of the trace, and timing what has no trace."""
