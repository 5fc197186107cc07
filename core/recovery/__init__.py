"""Recovery at a broker's start: scans the log, cuts a torn tail, and dispatches the records that were not dispatched."""
