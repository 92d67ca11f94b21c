"""Half-integer Matern processes from first principles, in NumPy: an oracle that shares no formula with the library.

k(r) = poly(lam r) exp(-lam r) is differentiated by the rules for polynomials; the RKHS inner product on [a, b] is
    <g, h> = integral of (L g)(L h) dx / q + state_g(a)^T Pinf^-1 state_h(a),   L = (d/dx + lam)^(p+1),
evaluated by Gauss-Legendre quadrature.
"""

import itertools
from math import comb, factorial

import numpy as np
from numpy.polynomial import Polynomial


class Matern:
    def __init__(self, order: int, variance: float, lengthscale: float):
        self.order, self.variance = order, variance
        self.lam = np.sqrt(2 * order + 1) / lengthscale
        p = order  # Rasmussen and Williams (2006), eq. 4.16
        coefficients = np.zeros(p + 1)
        for i in range(p + 1):
            coefficients[p - i] = (
                factorial(p) / factorial(2 * p) * factorial(p + i) / (factorial(i) * factorial(p - i))
            ) * 2 ** (p - i)
        self.poly = Polynomial(coefficients)

    def profile_derivative(self, r, n: int):
        """The n-th derivative of k at r >= 0."""
        poly = self.poly
        for _ in range(n):
            poly = poly.deriv() - poly
        return self.variance * self.lam**n * poly(self.lam * r) * np.exp(-self.lam * r)

    def derivative(self, x, y, n: int):
        """d^n/dx^n k(x, y)."""
        sign = np.sign(x - y) if n % 2 else 1.0
        return sign * self.profile_derivative(np.abs(x - y), n)

    def gram(self, x, y):
        return self.derivative(np.asarray(x)[:, None], np.asarray(y)[None, :], 0)

    def state_covariance(self):
        """Pinf[i, j] = cov(f^(i), f^(j)) = (-1)^j k^(i+j)(0); odd derivatives at 0 vanish."""
        n = self.order + 1
        return np.array(
            [
                [0.0 if (i + j) % 2 else (-1) ** j * self.profile_derivative(0.0, i + j) for j in range(n)]
                for i in range(n)
            ]
        )

    def spectral_density(self, w: float) -> float:
        """2 integral_0^inf k(r) cos(w r) dr by quadrature."""
        edges = np.linspace(0, 60 / self.lam, 400)
        r, weight = gauss_legendre(edges)
        return float(2 * np.sum(weight * self.profile_derivative(r, 0) * np.cos(w * r)))

    def apply_operator(self, derivatives):
        """(d/dx + lam)^(p+1) g from [g, g', ..., g^(p+1)]."""
        n = self.order + 1
        return sum(comb(n, i) * self.lam ** (n - i) * derivatives[i] for i in range(n + 1))

    def inner(self, g, h, a: float, b: float, breaks=()) -> float:
        """<g, h> on [a, b]; g(x, n) is the n-th derivative; `breaks` are points where they are not smooth."""
        n = self.order + 1
        q = self.spectral_density(0.0) * self.lam ** (2 * n)
        cuts = sorted({a, b, *[c for c in breaks if a < c < b]})
        edges = np.unique(np.concatenate([np.linspace(s, t, 40) for s, t in itertools.pairwise(cuts)]))
        x, weight = gauss_legendre(edges)
        Lg = self.apply_operator([g(x, i) for i in range(n + 1)])
        Lh = self.apply_operator([h(x, i) for i in range(n + 1)])
        state_g = np.array([g(a, i) for i in range(n)])
        state_h = np.array([h(a, i) for i in range(n)])
        boundary = state_g @ np.linalg.solve(self.state_covariance(), state_h)
        return float(np.sum(weight * Lg * Lh) / q + boundary)


def gauss_legendre(edges):
    """Nodes and weights of 20-point rules on the pieces between the edges."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    return (middle + half * nodes).ravel(), (half * weights).ravel()


def fourier_basis(m: int, num_frequencies: int, a: float, b: float):
    """phi_m with its derivatives: phi(x, n)."""
    k = m if m <= num_frequencies else m - num_frequencies
    w = 2 * np.pi * k / (b - a)
    shift = 0.0 if m <= num_frequencies else -np.pi / 2  # sin(z) = cos(z - pi/2)

    def phi(x, n):
        if k == 0:
            return np.ones_like(x) if n == 0 else np.zeros_like(x)
        return w**n * np.cos(w * (x - a) + shift + n * np.pi / 2)

    return phi
