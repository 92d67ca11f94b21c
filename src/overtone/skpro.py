"""A probabilistic regressor for skpro, whose metrics, pipelines and tuning take it; needs `overtone[skpro]`."""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from overtone.estimators.regressor import DeepGPRegressor

__all__ = ["DeepGPProbaRegressor"]


class DeepGPProbaRegressor(BaseProbaRegressor):
    """A `DeepGPRegressor` of one target behind skpro's interface.

    >>> model = DeepGPProbaRegressor(DeepGPRegressor(max_time=60))                               # doctest: +SKIP
    >>> model.fit(X_train, y_train).predict_interval(X_test, coverage=0.9)                       # doctest: +SKIP
    """

    _tags: ClassVar = {"capability:multioutput": False, "capability:missing": False}

    def __init__(self, estimator: DeepGPRegressor | None = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any, C: Any = None) -> "DeepGPProbaRegressor":
        model: Any = clone(self.estimator or DeepGPRegressor())
        self.estimator_ = model.fit(_with_names(X), y.iloc[:, 0])
        self.names_ = y.columns
        return self

    def _predict_proba(self, X: Any) -> Any:
        source = Source(self.estimator_, _with_names(X))
        return Predicted(source, np.arange(len(X))[:, None], index=X.index, columns=self.names_)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> Any:
        """Return parameters for skpro's own checks."""
        return [{"estimator": DeepGPRegressor("svgp", max_steps=steps)} for steps in (5, 10)]


def _with_names(X: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose columns have names, as scikit-learn wants them, and not numbers."""
    return X.set_axis(X.columns.astype(str), axis=1)


class Source:
    """A fitted model, and the inputs of the rows that it predicts."""

    def __init__(self, model: DeepGPRegressor, X: pd.DataFrame):
        self.model, self.X = model, X


class Predicted(BaseDistribution):
    """What a model predicts for some rows of a source, by their numbers.

    Draws are functions of the deep GP plus noise: what neighbours know is no part of them, and of all else it is.
    """

    _tags: ClassVar = {
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "capabilities:approx": ["energy", "pdfnorm"],
        "distr:measuretype": "continuous",
    }

    def __init__(self, source: Source, rows: Any, index: Any = None, columns: Any = None):
        self.source, self.rows = source, rows
        super().__init__(index=index, columns=columns)

    @property
    def model(self) -> Any:
        return self._source.model

    @property
    def inputs(self) -> pd.DataFrame:
        return self._source.X.iloc[np.ravel(self.rows)]

    @property
    def _source(self) -> Source:
        return np.asarray(self.source).item()  # of parts of a distribution, skpro makes arrays of all parameters

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return np.reshape(values, np.shape(self.rows))

    def _mean(self):
        return self._shaped(self.model.predict(self.inputs))

    def _var(self):
        return self._shaped(self.model.predict(self.inputs, return_std=True)[1] ** 2)

    def _log_pdf(self, x):
        return self._shaped(self.model.log_predictive_density(self.inputs, np.ravel(x)))

    def _pdf(self, x):
        return np.exp(self._log_pdf(x))

    def _cdf(self, x):
        return self._shaped(self.model.predictive_cdf(self.inputs, np.ravel(x)))

    def _ppf(self, p):
        levels, which = np.unique(np.ravel(p), return_inverse=True)
        values = np.where(levels > 0, np.inf, -np.inf)[:, None] + np.zeros(len(self.inputs))
        inside = (levels > 0) & (levels < 1)
        values[inside] = self.model.predict_quantiles(self.inputs, levels[inside])
        return self._shaped(values[which, np.arange(len(which))])

    def _sample(self, n_samples=None):
        seed = np.random.randint(2**31)  # noqa: NPY002  # skpro's draws follow NumPy's global seed
        draws = self.model.sample_y(self.inputs, n_samples or 1, random_state=seed)
        index = self.index
        if n_samples is not None:
            index = pd.MultiIndex.from_product([range(n_samples), *([index] if index is not None else [])])
        return pd.DataFrame(draws.T.reshape(-1, 1), index=index, columns=self.columns)
