"""The bloom filter of the bit maps that consume queue extensions hold."""
