"""The command `perf`: one file per verb. A verb parses, calls one function and writes one file; heavy imports stay inside."""
