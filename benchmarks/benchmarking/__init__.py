"""What `benchmarks/peers.py` is made of: texts, programs, the processes they run in, tables."""
