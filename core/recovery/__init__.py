"""What a start does with a log: walk it, cut a torn tail, and dispatch again what was not dispatched."""
