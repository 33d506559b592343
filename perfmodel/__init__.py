"""What a step costs and what acceptance gives: records, roofline, fit, audit, prediction. Plain Python, never JAX."""
