"""Fit boosted trees, stopped early on a tenth of the training rows: LightGBM, CatBoost and NGBoost.

`lightgbm` (127 leaves, rate 0.05, at least 5 rows a leaf) and `catboost` (depth 8, rate 0.05) predict a mean alone.
`catboost-density` (RMSEWithUncertainty, otherwise the same) and `ngboost` (Normal, trees of depth 3, rate 0.05, each
from at most 20,000 random rows) predict a Gaussian for each row. What is not said here is a library's default. All end
after thousands of rounds or MOST_SECONDS seconds, too.
"""

import json
from time import perf_counter

import numpy as np

from benchmarks.curve import case, mixture_metrics

RATE, MOST_ROUNDS, PATIENCE, MOST_SECONDS = 0.05, 5000, 100, 900
NGBOOST_ROUNDS, NGBOOST_ROWS = 2000, 20_000


class OutOfTime(Exception):
    """Ends a fit that has no other way to be ended."""


def lightgbm(X, y, chosen, X_test, seed):
    """Return the mean of each test row, no variance, and the number of rounds."""
    import lightgbm

    settings = {"num_leaves": 127, "learning_rate": RATE, "min_data_in_leaf": 5, "num_threads": 1, "seed": seed}
    train = lightgbm.Dataset(X[~chosen], y[~chosen])
    deadline = perf_counter() + MOST_SECONDS

    def in_time(state):
        if perf_counter() > deadline:
            raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    model = lightgbm.train(
        {"objective": "l2", "verbosity": -1, **settings},
        train,
        MOST_ROUNDS,
        valid_sets=[lightgbm.Dataset(X[chosen], y[chosen], reference=train)],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), in_time],
    )
    return model.predict(X_test), None, model.best_iteration


def catboost(X, y, chosen, X_test, seed, loss="RMSE"):
    """Return the mean of each test row, its variance if the loss knows of it, and the number of rounds."""
    from catboost import CatBoostRegressor

    deadline = perf_counter() + MOST_SECONDS

    class InTime:
        def after_iteration(self, info):
            return perf_counter() < deadline

    model = CatBoostRegressor(
        loss_function=loss,
        depth=8,
        learning_rate=RATE,
        iterations=MOST_ROUNDS,
        random_seed=seed,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
    )
    rows = {"eval_set": (X[chosen], y[chosen]), "early_stopping_rounds": PATIENCE, "use_best_model": True}
    model.fit(X[~chosen], y[~chosen], callbacks=[InTime()], **rows)
    mean, *variance = np.atleast_2d(model.predict(X_test).T)
    return mean, variance[0] if variance else None, model.tree_count_


def catboost_density(*rows):
    """Return mean and variance of each test row, and the number of rounds."""
    return catboost(*rows, loss="RMSEWithUncertainty")


def ngboost(X, y, chosen, X_test, seed):
    """Return mean and variance of each test row, and the number of rounds."""
    from ngboost import NGBRegressor

    share, deadline = min(1.0, NGBOOST_ROWS / np.sum(~chosen)), perf_counter() + MOST_SECONDS
    model = NGBRegressor(
        n_estimators=NGBOOST_ROUNDS, learning_rate=RATE, minibatch_frac=share, random_state=seed, verbose=False
    )
    losses = []

    def in_time(distribution, targets):
        losses.append(distribution.total_score(targets))
        if perf_counter() > deadline:
            raise OutOfTime
        return losses[-1]

    try:
        rows = {"X_val": X[chosen], "Y_val": y[chosen], "early_stopping_rounds": PATIENCE}
        model.fit(X[~chosen], y[~chosen], val_loss_monitor=in_time, **rows)
    except OutOfTime:
        pass
    rounds = int(np.argmin(losses)) + 1
    test = model.pred_dist(X_test, max_iter=rounds)
    return test.loc, test.scale**2, rounds


METHODS = {"lightgbm": lightgbm, "catboost": catboost, "catboost-density": catboost_density, "ngboost": ngboost}


def main() -> None:
    """Fit the trees of a case, and print their figures."""
    settings, arrays = case()
    X, y, X_test, y_test = (arrays[name].astype(float) for name in ("X", "y", "X_test", "y_test"))
    chosen = np.zeros(len(y), bool)
    chosen[np.random.default_rng(settings["seed"]).permutation(len(y))[: len(y) // 10]] = True
    began = perf_counter()
    mean, variance, rounds = METHODS[settings["method"]](X, y, chosen, X_test, settings["seed"])
    point = {"seconds": perf_counter() - began, "rounds": rounds}
    if variance is None:
        point["rmse"] = float(np.sqrt(np.mean((mean - y_test) ** 2)))
    else:
        point |= mixture_metrics(y_test, np.zeros(1), mean[None], np.maximum(variance, 1e-12)[None])
    print(json.dumps(point), flush=True)


if __name__ == "__main__":
    main()
