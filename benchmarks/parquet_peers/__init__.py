"""What benchmarks/parquet.py measures, each in a process of its own: ours, the limits, and
Petastorm in its own environment.
"""
