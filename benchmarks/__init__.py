"""Benchmarks: what Lorry costs and gains beside what people would run instead. `python -m benchmarks` runs all."""
