"""Deep Gaussian processes: kernels, inducing features, posteriors, likelihoods, layers, models, predictions."""
