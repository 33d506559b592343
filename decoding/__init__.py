"""The DFlash draft/verify loop in JAX: target, drafter, caches, accept rule, checkpoints, training recipe."""
