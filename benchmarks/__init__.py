"""Speed benchmarks, run by hand (`make bench`): ratios measured side by side, never asserted in a timed test."""
