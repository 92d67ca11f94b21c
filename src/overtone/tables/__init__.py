"""Tables as they are on disk, and the numbers that models make of their columns."""
