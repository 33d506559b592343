"""Measuring a running OpenAI-compatible server: load, counters, launching one server per K, and choosing which K is next."""
