"""Benchmarks against other engines: export of the models, and one process for each engine.

`cargo xtask bench-peers` starts `peers.prepare` once and then `peers.worker` for each engine;
docs/benchmarks/README.md describes the method.
"""
