"""Train GPyTorch's deep GP as its documentation sets it: whitened, full covariance, k-means points, float32."""

import gpytorch
import numpy as np
import torch
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from scipy.cluster.vq import kmeans2

from benchmarks.protocol import case, data, serve


class Layer(DeepGPLayer):
    """A layer with points that are learned."""

    def __init__(self, points, num_outputs, linear):
        num_inputs, batch = points.shape[1], torch.Size([num_outputs] if num_outputs else [])
        q = CholeskyVariationalDistribution(len(points), batch_shape=batch)
        strategy = VariationalStrategy(self, points, q, learn_inducing_locations=True)
        super().__init__(strategy, num_inputs, num_outputs)
        self.mean_module = gpytorch.means.LinearMean(num_inputs) if linear else gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.MaternKernel(1.5, batch_shape=batch, ard_num_dims=num_inputs)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model(DeepGP):
    """Two layers."""

    def __init__(self, points):
        super().__init__()
        self.hidden = Layer(points, points.shape[1], linear=True)
        self.output = Layer(points, None, linear=False)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x):
        return self.output(self.hidden(x))


def main() -> None:
    """Build the model of a case, and serve."""
    settings = case()
    torch.manual_seed(0)
    X, y = data(settings["inputs"])
    points, _ = kmeans2(X, settings["points"], minit="points", seed=0, iter=10)
    model = Model(torch.from_numpy(points.astype(np.float32)))
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    objective = DeepApproximateMLL(VariationalELBO(model.likelihood, model, len(X)))
    optim, rng = torch.optim.Adam(model.parameters(), lr=0.01), np.random.default_rng(0)
    model.train()

    def run(num: int) -> None:
        with gpytorch.settings.num_likelihood_samples(1):
            for _ in range(num):
                rows = torch.from_numpy(rng.integers(len(X), size=settings["batch"]))
                optim.zero_grad()
                loss = -objective(model(X[rows]), y[rows])
                loss.backward()
                optim.step()

    serve(run)


if __name__ == "__main__":
    main()
