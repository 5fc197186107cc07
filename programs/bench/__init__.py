"""``flintmq bench``: a load generator that needs so little processor time that the broker limits the measured rates."""
