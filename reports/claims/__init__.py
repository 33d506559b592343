"""Every numeric claim the project starts from, judged: `python -m reports.claims docs` writes docs/claims.md and its figures."""
