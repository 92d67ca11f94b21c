"""Train GPyTorch's deep GP, DSPP or SVGP, as its documentation sets them, in single precision with k-means points.

Deep GP: 2 layers, 128 points. DSPP: 2 layers, 300 points, 3 hidden units, 8 quadrature sites, beta 0.05. SVGP: 500
points. Adam at 0.01, batches of 1,024. A method whose name ends with -converged is trained until its objective no
longer rises.
"""

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, DeepPredictiveLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer
from gpytorch.variational import CholeskyVariationalDistribution, MeanFieldVariationalDistribution, VariationalStrategy
from scipy.cluster.vq import kmeans2

from benchmarks.curve import BATCH, DRAWS, POINTS, RATE, case, follow, follow_to_the_end, mixture_metrics

DSPP_POINTS, DSPP_WIDTH, DSPP_SITES, DSPP_BETA, SVGP_POINTS, MAX_WIDTH = 300, 3, 8, 0.05, 500, 10


def centres(X: np.ndarray, num: int) -> torch.Tensor:
    """Return k-means centres of the rows of X."""
    points, _ = kmeans2(X, min(num, len(X) - 1), minit="points", seed=0, iter=10)
    return torch.from_numpy(points.astype(np.float32))


class Layer(DeepGPLayer):
    """A layer of the deep GP."""

    def __init__(self, points, num_outputs):
        num_inputs, batch = points.shape[-1], torch.Size([num_outputs] if num_outputs else [])
        q = CholeskyVariationalDistribution(points.shape[-2], batch_shape=batch)
        super().__init__(VariationalStrategy(self, points, q), num_inputs, num_outputs)
        self.mean_module = LinearMean(num_inputs) if num_outputs else ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(batch_shape=batch, ard_num_dims=num_inputs), batch_shape=batch)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Deep(DeepGP):
    """Two layers."""

    def __init__(self, X):
        super().__init__()
        width = min(X.shape[1], MAX_WIDTH)
        self.hidden = Layer(centres(X, POINTS), width)
        self.output = Layer(torch.randn(POINTS, width), None)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return self.output(self.hidden(x))

    def mixture(self, X):
        """Return log weights, means and variances of the prediction."""
        with gpytorch.settings.num_likelihood_samples(DRAWS):
            y = self.likelihood(self(X))
        return np.full(DRAWS, -np.log(DRAWS)), y.mean, y.variance


class SparseLayer(DSPPLayer):
    """A layer of the deep sigma point process."""

    def __init__(self, points, num_outputs):
        num_inputs, batch = points.shape[-1], torch.Size([num_outputs] if num_outputs else [])
        q = MeanFieldVariationalDistribution(points.shape[-2], batch_shape=batch)
        super().__init__(VariationalStrategy(self, points, q), num_inputs, num_outputs, DSPP_SITES)
        self.mean_module = LinearMean(num_inputs) if num_outputs else ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(batch_shape=batch, ard_num_dims=num_inputs), batch_shape=batch)

    forward = Layer.forward


class Predictive(DSPP):
    """Two layers of a deep sigma point process."""

    def __init__(self, X):
        super().__init__(DSPP_SITES)
        self.hidden = SparseLayer(centres(X, DSPP_POINTS), DSPP_WIDTH)
        self.output = SparseLayer(torch.randn(DSPP_POINTS, DSPP_WIDTH), None)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return self.output(self.hidden(x))

    def mixture(self, X):
        """Return log weights, means and variances of the prediction."""
        y = self.likelihood(self(X))
        return self.quad_weights.numpy(), y.mean, y.variance


class Sparse(ApproximateGP):
    """A shallow sparse GP."""

    def __init__(self, X):
        points = centres(X, SVGP_POINTS)
        super().__init__(VariationalStrategy(self, points, CholeskyVariationalDistribution(len(points))))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(1.5, ard_num_dims=X.shape[1]))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    forward = Layer.forward

    def mixture(self, X):
        """Return log weights, means and variances of the prediction."""
        y = self.likelihood(self(X))
        return np.zeros(1), y.mean[None], y.variance[None]


def objective(model, num_data: int):
    """Return what GPyTorch maximises for a kind of model."""
    if isinstance(model, DSPP):
        return DeepPredictiveLogLikelihood(model.likelihood, model, num_data, beta=DSPP_BETA)
    bound = VariationalELBO(model.likelihood, model, num_data)
    return DeepApproximateMLL(bound) if isinstance(model, DeepGP) else bound


def main() -> None:
    """Build the model of a case, and train it by the clock."""
    settings, arrays = case()
    torch.manual_seed(settings["seed"])
    torch.set_flush_denormal(True)  # the first hundred steps are several times quicker
    method = settings["method"].removesuffix("-converged")
    model = {"gpytorch-dgp": Deep, "gpytorch-dspp": Predictive, "gpytorch-svgp": Sparse}[method](arrays["X"])
    X, y = (torch.from_numpy(arrays[name]) for name in ("X", "y"))
    loss, optim = objective(model, len(X)), torch.optim.Adam(model.parameters(), lr=RATE)
    rng = np.random.default_rng(settings["seed"])

    def step() -> float:
        rows = torch.from_numpy(rng.integers(len(X), size=min(BATCH, len(X))))
        optim.zero_grad()
        with gpytorch.settings.num_likelihood_samples(settings.get("draws", 1)):
            value = loss(model(X[rows]), y[rows])
        (-value).backward()
        optim.step()
        return value.item()

    def evaluate() -> dict:
        model.eval()
        parts = []
        with torch.no_grad():
            for rows in torch.from_numpy(arrays["X_test"]).split(BATCH):
                log_weights, means, variances = model.mixture(rows)
                parts.append((means.numpy(), variances.numpy()))
        model.train()
        means, variances = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        return mixture_metrics(arrays["y_test"], log_weights, means, variances)

    model.train()
    if method != settings["method"]:
        follow_to_the_end(settings["seconds"][-1], step, evaluate)
    else:
        follow(settings["seconds"], step, evaluate)


if __name__ == "__main__":
    main()
