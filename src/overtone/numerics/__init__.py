"""Arrays and constraints, structured matrices, trigonometric polynomials: mathematics without Gaussian processes."""
