"""B-spline features on [a, b]: RKHS features of compact support (Cunningham, de Souza, van der Wilk 2023).

u_m = <phi_m, f> in the RKHS of a Matern kernel of order p, with phi_m the B-splines of degree k > p on knots at equal
distances, which go on beyond a and b so that the splines span all polynomials of degree k on [a, b]. By the reproducing
property cov(u_m, f(x)) = phi_m(x) on [a, b], which is zero for all but k + 1 splines, and a banded matrix is
    Kuu[l, m] = 1 / S(0) int_a^b (L phi_l) (L phi_m) dx + B[:, l]^T Pinf^-1 B[:, m],   L = (1 + (d/dx) / lam)^(p+1),
where B[i, m] = phi_m^(i)(a) / lam^i. Beyond an edge, f depends on [a, b] only through the state there, so Kuf is c(r) B
at distance r.
"""

from functools import lru_cache
from math import comb

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.polynomial import polyder, polymul, polyval

from overtone.gp.features.base import AbstractInducingFeatures, per_dimension
from overtone.gp.features.fourier import matern
from overtone.gp.features.pinned import FIRST_INTERVAL, HIDDEN_INTERVAL
from overtone.gp.kernels import AbstractMatern
from overtone.numerics.linalg import Banded, from_differences
from overtone.numerics.params import OptionalParam


class BSplines(AbstractInducingFeatures):
    """M B-splines for a one-dimensional Matern process of order p.

    Unless it is given, [a, b] sits tight around the data in the first layer and is wider in hidden ones; it is not
    learned. Unless it is given, the degree is 2p + 1, with which the residual vanishes as fast as with any M variables.
    """

    num_splines: int = eqx.field(static=True)
    a: OptionalParam = None
    b: OptionalParam = None
    degree: int | None = eqx.field(static=True, default=None)

    def initialised(self, kernel, H, *, first, learned, seed, dtype):
        kernel, start = matern(kernel), FIRST_INTERVAL if first else HIDDEN_INTERVAL
        sized = BSplines(self.num_splines, self.a, self.b, self._degree(kernel))
        return per_dimension(kernel, sized, start, H.shape[1], dtype)

    @property
    def num_features(self):
        return self.num_splines

    def Kuu(self, kernel):
        kernel = matern(kernel)
        p, k = kernel.order, self._degree(kernel)
        spacing = self._spacing(k)
        rho = kernel.rate * spacing
        step = rho / (1 + rho)  # the unit of differences: in units of rho they are derivatives, but rho may be large

        def derivatives(i: int, t: np.ndarray) -> Float[Array, "T k1"]:
            """Return (d/dx)^i / lam^i of step^j psi_j, the functions whose coefficients are the scaled differences."""
            values = polyval(t, polyder(difference_pieces(k), i)).T  # zero for j < i
            return jnp.asarray(values, rho.dtype) * (1 + rho) ** -i * step ** np.maximum(np.arange(k + 1) - i, 0)

        nodes, weights = np.polynomial.legendre.leggauss(k + 1)  # exact for polynomials of degree 2k
        weights = jnp.asarray(weights / 2, rho.dtype) * spacing / kernel.spectral_density(jnp.zeros(1, rho.dtype))
        L_psi = sum(comb(p + 1, i) * derivatives(i, (1 + nodes) / 2) for i in range(p + 2))
        # a is the right end of the interval before it, where psi_k and its derivatives vanish. Pinf = s2 R R^T.
        B = jnp.concatenate([derivatives(i, np.ones(1))[:, :k] for i in range(p + 1)])
        whiten = jnp.asarray(np.linalg.inv(np.linalg.cholesky(kernel.state_correlation)), rho.dtype)  # R^-1
        first = whiten @ B / jnp.sqrt(kernel.variance)
        return Banded(first, jnp.sqrt(weights)[:, None] * L_psi, step, self.num_splines)

    def Kuf(self, kernel, X):
        kernel, x = matern(kernel), X[:, 0]
        p, k = kernel.order, self._degree(kernel)
        spacing = self._spacing(k)
        inside = jnp.clip(x, self.a, self.b)
        t = (inside - self.a) / spacing
        interval = jnp.clip(jnp.floor(t), 0, self.num_splines - k - 1)
        # Of the k + 1 splines that are not zero there: inside their values, beyond an edge c(r) B.
        values = jnp.polyval(jnp.asarray(pieces(k)[::-1, :, None], x.dtype), t - interval)
        i = np.arange(p + 1)[:, None]
        c = kernel.extrapolation(jnp.abs(x - inside)) * (kernel.rate * spacing) ** -i
        before = jnp.asarray(state(k, p, 0.0) * (-1.0) ** i, x.dtype).T @ c  # going left, odd derivatives change sign
        after = jnp.asarray(state(k, p, 1.0), x.dtype).T @ c
        values = jnp.where(x < self.a, before, jnp.where(x > self.b, after, values))
        which = np.arange(self.num_splines)[:, None] - interval
        return jnp.sum(jnp.stack([jnp.where(which == m, values[m], 0) for m in range(k + 1)]), axis=0)

    def outside(self, X):
        return (X < self.a) | (X > self.b)

    def _spacing(self, degree: int) -> Float[Array, ""]:
        """Return the distance between two knots."""
        return (self.b - self.a) / (self.num_splines - degree)

    def _degree(self, kernel: AbstractMatern) -> int:
        """Return the degree of the splines, if the RKHS contains them and they are enough for one interval."""
        degree = 2 * kernel.order + 1 if self.degree is None else self.degree
        if degree <= kernel.order:
            raise ValueError(
                f"the RKHS of {type(kernel).__name__} contains splines of degree {kernel.order + 1} and more, "
                f"got degree={degree}; leave it out to have the best."
            )
        if self.num_splines <= degree:
            raise ValueError(
                f"{self.num_splines} splines of degree {degree} do not cover an interval; take {degree + 1} or more."
            )
        return degree


@lru_cache(maxsize=8)
def pieces(degree: int) -> np.ndarray:
    """Return the coefficients (power, spline) of the k + 1 B-splines on a unit interval between two knots, in order.

    The spline of degree d on the knots 0, ..., d + 1 has the pieces N_d,n on [n, n + 1], by the recursion of de Boor
    and Cox N_d,n(t) = ((n + t) N_d-1,n(t) + (d + 1 - n - t) N_d-1,n-1(t)) / d. The first spline is at its last piece.
    """
    N = [np.ones(1)]
    for d in range(1, degree + 1):
        same, before = [*N, np.zeros(d)], [np.zeros(d), *N]
        N = [(polymul([n, 1], same[n]) + polymul([d + 1 - n, -1], before[n])) / d for n in range(d + 1)]
    return np.stack(N[::-1], axis=1)


def state(degree: int, order: int, t: float) -> np.ndarray:
    """Return the values and derivatives (order + 1, k + 1) of these B-splines at t in [0, 1]."""
    return np.stack([polyval(t, polyder(pieces(degree), i)) for i in range(order + 1)])


@lru_cache(maxsize=8)
def difference_pieces(degree: int) -> np.ndarray:
    """Return the coefficients (power, j) of psi_0, ..., psi_k, with sum_m c_m phi_m = sum_j D^j c_k psi_j.

    D^j c_k are the differences of the last coefficient. psi_j is a polynomial of degree j, since the i-th derivative of
    a spline depends on differences of order i and more alone.
    """
    return np.triu(pieces(degree) @ from_differences(degree + 1))
