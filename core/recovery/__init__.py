"""Recovery at a start: it scans the log, cuts a torn tail, and dispatches the records that were not dispatched."""
