"""The general inter-domain framework: any linear functional of f as an inducing variable.

`OperatorFeatures` takes the covariances k_u(x) and K_uu as functions: for features whose integrals
are known. `IntegralFeatures` takes only the weights g_m of u_m = integral of f(x) g_m(x) dx, at the
nodes of a quadrature rule, and works with every kernel.
"""

from collections.abc import Callable

import equinox as eqx

from overtone.gp.features.base import AbstractInducingFeatures
from overtone.numerics.linalg import AbstractPSDOperator, Dense
from overtone.numerics.params import Param


class OperatorFeatures(AbstractInducingFeatures):
    """Inducing variables given by their covariances.

    `kuu(kernel)` returns an operator (`Dense`, `DiagonalPlusLowRank`, ...), `kuf(kernel, X)` an
    array of shape (size, N).
    """

    kuu: Callable = eqx.field(static=True)
    kuf: Callable = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @property
    def num_features(self):
        return self.size

    def Kuu(self, kernel) -> AbstractPSDOperator:
        return self.kuu(kernel)

    def Kuf(self, kernel, X):
        return self.kuf(kernel, X)


class IntegralFeatures(AbstractInducingFeatures):
    """u_m = sum_q weights[m, q] f(nodes[q]), weights[m, q] = g_m(nodes[q]) times the rule's weight."""

    nodes: Param  # (Q, D)
    weights: Param  # (M, Q)

    @property
    def num_features(self):
        return self.weights.shape[0]

    def Kuu(self, kernel):
        return Dense(self.weights @ kernel.gram(self.nodes, self.nodes) @ self.weights.T)

    def functionals(self, functions):
        return self.weights @ functions(self.nodes).T

    def Kuf(self, kernel, X):
        return self.weights @ kernel.gram(self.nodes, X)
