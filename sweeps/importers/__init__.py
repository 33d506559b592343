"""Readers of other tools' results, one format a file; `registry` knows them all."""
