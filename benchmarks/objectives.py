"""Try other objectives, draws and optimisers than the default's, for the figures of docs/inference.md.

Writes one JSON line for each fit to results/objectives.jsonl, and does not run cases again that are there. Each case is
a process of its own on one core, with a cache of its own, so that none finds the programs of another.

    OVERTONE_DATA=folder python -m benchmarks.objectives
    OVERTONE_DATA=folder python -m benchmarks.objectives NAME TABLE SECONDS...    # a single case
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from queue import Queue
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from benchmarks.lines import RESULTS
from benchmarks.tables import NAMES, load
from benchmarks.trial import trial
from overtone import DeepGP, KLWeights, NaturalGradient, PredictiveDensity, Projection, planned, unwrap
from overtone.autopilot.train import Parts
from overtone.inference.objective import AbstractObjective, Rows
from overtone.numerics.compiling import forget_programs

PATH = RESULTS / "objectives.jsonl"
TRAFFIC, AIR, PARKING, APPLIANCES, KIN8NM, POWERPLANT, PROTEIN = NAMES[3:]
SECONDS, BUDGETS = [40], [30, 120]  # for trials side by side, and by the clock of the quality benchmark
NUM_STARTS, START_SHARE = 3, 0.1  # the share of the time that each start has to show what it is worth


class Around(AbstractObjective):
    """Natural gradients with another loss: `around` takes the library's objective, then all that a loss takes."""

    natural: NaturalGradient
    around: Callable = eqx.field(static=True)
    full_batch = False

    def init(self, model, data):
        return self.natural.init(model, data)

    def loss(self, model, state, key, batch):
        return self.around(self.natural, model, state, key, batch)

    def finish(self, model, state, key, data=None):
        return self.natural.finish(model, state, key, data)


def importance_weighted(natural: NaturalGradient, model, state, key, batch):
    """Take the log of the mean over hidden draws instead of the mean of logs, in the bound and in the sites."""
    likelihood = LogMeanOverDraws(model.likelihood, natural.num_samples)
    return natural.loss(eqx.tree_at(lambda m: m.likelihood, model, likelihood), state, key, batch)


class LogMeanOverDraws(eqx.Module):
    """A likelihood that gives all draws of a row the log of their mean, so that better draws count more."""

    each: Any
    num_draws: int = eqx.field(static=True)

    reference = property(lambda self: self.each.reference)
    reach = property(lambda self: self.each.reach)

    def kl(self):
        return self.each.kl()

    def at(self, project, shape):
        return LogMeanOverDraws(self.each.at(project, shape), self.num_draws)

    def expected_log_prob(self, y, mean, var):
        values = self.each.expected_log_prob(y, mean, var)
        by_draw = values.reshape(self.num_draws, -1, values.shape[-1])
        log_mean = jax.nn.logsumexp(by_draw, axis=0) - np.log(self.num_draws).astype(values.dtype)
        return jnp.tile(log_mean, (self.num_draws, 1))


def one_function(natural: NaturalGradient, model, state, key, batch, divergence: str = "closed"):
    """Draw one function of each hidden layer for all rows of a step, but fine structure for each row.

    The divergence is in closed form ("closed"), that of the draw ("sampled"), or the latter without the derivative by
    the parameters of q ("landing").
    """
    model, H, kl = unwrap(model), batch.X, 0.0
    for depth, layer in enumerate(model.layers[:-1]):
        main, X, keys = layer.main, H, jax.random.split(jax.random.fold_in(key, depth), 3)
        v, H = main.q.sample(keys[0]), main.draw(*keys[:2], X)  # a function with this v
        kl += main.kl() if divergence == "closed" else log_ratio(main.q, v, divergence == "landing")
        for addend in getattr(layer, "parts", ())[1:]:
            mean, var = addend(X)
            H = H + mean + jnp.sqrt(var) * jax.random.normal(keys[2], mean.shape, mean.dtype)
            kl += addend.kl()
    value, next_state = natural.loss(DeepGP(model.layers[-1:], model.likelihood), state, key, Rows(H, batch.y))
    return value + kl / state.num_data, next_state


def log_ratio(q, v, landing: bool):
    """Return log q(v) - log p(v) for q = Full, for the landing with a derivative by v alone."""
    unit, log_diag, mean = jax.lax.stop_gradient((q.factor[0], q.log_diag, q.mean))
    # Otherwise the derivatives of eps by v and by the parameters of q cancel.
    miss = (v if landing else jax.lax.stop_gradient(v)) - mean
    L = jnp.swapaxes(unit, 1, 2)  # (B, P, M, M)
    eps = jax.scipy.linalg.solve_triangular(L, miss[..., None], lower=True, unit_diagonal=True)[..., 0]
    eps = eps * jnp.exp(-log_diag)
    return jnp.sum(0.5 * v**2 - 0.5 * eps**2 - (log_diag if landing else q.log_diag))


def muon(learning_rate: float) -> optax.GradientTransformation:
    """Return Muon, a relative of Shampoo, for projections and the means of q, and Adam for the rest.

    Its steps are orthogonal matrices, and as large as Adam's: Liu et al. (2025) propose a root mean square of 0.2.
    """

    def axes(array):
        is_matrix = array.ndim in (2, 3) and min(array.shape[-2:]) > 1
        return contrib.MuonDimensionNumbers(array.ndim - 1, array.ndim - 2) if is_matrix else None

    matrices = {"muon_weight_dimension_numbers": lambda params: jax.tree.map(axes, params)}
    return contrib.muon(learning_rate, **matrices, consistent_rms=0.2)


def clipped(learning_rate: float) -> optax.GradientTransformation:
    """Return Adam for gradients of the loss per row that are no longer than 1."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))


def informed(model: DeepGP, rows: Rows) -> DeepGP:
    """Return the model with directions that start along gradients of the target instead of anywhere."""
    H = np.asarray(rows.X, float)
    for depth, layer in enumerate(model.layers):
        main = unwrap(layer.main)
        Z = np.asarray(main.scaling(H))
        if isinstance(main.projection, Projection):
            weight = along_gradients(np.asarray(main.projection.weight), Z, rows.y[:, 0], seed=depth)
            model = eqx.tree_at(lambda m, d=depth: m.layers[d].main.projection.weight, model, jnp.asarray(weight))
        H = np.asarray(main.mean_function(Z))
    return model


def along_gradients(weight: np.ndarray, Z: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Return directions (D, J): the axes, then random gradients of a ridge regression of y on random waves of Z."""
    (dims, num), rng = weight.shape, np.random.default_rng(seed)
    if num <= dims:
        return weight
    rows = rng.permutation(len(Z))[:10_000]
    Z, y = Z[rows] - 0.5, y[rows] - y.mean()
    slopes = rng.standard_normal((dims, 500)) * rng.choice((1, 2, 4, 8), 500) / dims**0.5
    phase = Z @ slopes + 2 * np.pi * rng.random(500)
    waves = np.cos(phase)
    gram = waves.T @ waves + 1e-3 * len(Z) * np.eye(500)
    gradients = -(np.sin(phase) * np.linalg.solve(gram, waves.T @ y)) @ slopes.T  # (N, D)
    chosen = gradients[rng.integers(len(Z), size=num - dims)].T
    chosen = chosen / np.linalg.norm(chosen, axis=0)
    reach = np.max(np.abs(Z @ chosen), axis=0)
    return np.concatenate([weight[:, :dims], chosen / (2 * reach)], axis=1).astype(weight.dtype)


def restarted(table: str, max_time: float, **settings) -> dict:
    """Give three starts a tenth of the time each, and the one that held-out rows like best the rest of it."""
    starts = [trial(table, max_time=START_SHARE * max_time, random_state=k, **settings) for k in range(NUM_STARTS)]
    scores = [start["held_out"] for start in starts]
    best = int(np.argmax(scores))
    rest = trial(table, max_time=(1 - NUM_STARTS * START_SHARE) * max_time, random_state=best, **settings)
    return {**rest, "starts": scores, "chosen": best}


class Trial(NamedTuple):
    """What differs from the default: parts, and settings, perhaps as functions of the number of inputs."""

    parts: Parts = Parts()
    settings: dict[str, Any] = {}  # noqa: RUF012
    tables: tuple[str, ...] = ()  # on which it is tried by the clock of the quality benchmark, too


def weighted(anneal_steps: int = 0, addends: float = 1.0, **parts) -> Parts:
    """Return natural gradients with these weights of divergences, and further parts."""
    return Parts(lambda plan: NaturalGradient(plan.num_samples, KLWeights(anneal_steps, addends)), **parts)


def around(loss: Callable, **settings) -> Parts:
    """Return natural gradients with another loss, in which the divergence counts whole."""
    loss = partial(loss, **settings)
    return Parts(lambda plan: Around(NaturalGradient(plan.num_samples), loss))


MORE_TABLES = (AIR, PARKING, PROTEIN, TRAFFIC, APPLIANCES)
USUAL = {"hidden_width": lambda num_inputs: min(num_inputs, 10)}  # where a trial says nothing else
LARGE = {"batch_size": 1024}  # the default before
FOUR, BY_ADAM = {**LARGE, "n_samples": 4}, {**LARGE, "output": "adam", "likelihood": "gaussian"}
EIGHT_BY_ADAM = {**BY_ADAM, "n_samples": 8}
RESTARTED = "the default, best of three starts"
COMPARED = {  # side by side
    "the default before": Trial(weighted(), LARGE, MORE_TABLES),
    "annealed divergence": Trial(weighted(1000), LARGE, MORE_TABLES),
    "the default": Trial(),
    "the default, Muon": Trial(Parts(optim=lambda rate: planned(muon(rate)))),
    RESTARTED: Trial(),
    "D units": Trial(),
    "D directions": Trial(settings={"n_projections": lambda num: num}),
    "4D + 1 directions": Trial(settings={"n_projections": lambda num: 4 * num + 1}),
    "D/2 units": Trial(settings={"hidden_width": lambda num: max(1, min(num, 10) // 2)}),
    "2D units": Trial(Parts(), {"hidden_width": lambda num: 2 * min(num, 10)}, (KIN8NM, *MORE_TABLES)),
    "Matern-5/2": Trial(settings={"kernel": "matern52"}),
    "gradients clipped": Trial(Parts(optim=lambda rate: planned(clipped(rate)))),
    "directions along which the target varies": Trial(Parts(prepared=informed)),
    "4 draws": Trial(weighted(), FOUR),
    "4 draws, importance-weighted": Trial(around(importance_weighted), FOUR),
    "one function for all rows": Trial(around(one_function), LARGE),
    "the same, sampled divergence": Trial(around(one_function, divergence="sampled"), LARGE),
    "the same, sticking the landing": Trial(around(one_function, divergence="landing"), LARGE),
    "nadam": Trial(weighted(optim=lambda rate: planned(optax.nadam(rate))), LARGE),
    "adabelief": Trial(weighted(optim=lambda rate: planned(optax.adabelief(rate))), LARGE),
    "Gaussian noise, output layer by Adam": Trial(settings=BY_ADAM),
    "the same, 8 draws": Trial(settings=EIGHT_BY_ADAM),
    "the same, 8 draws, predictive density": Trial(
        Parts(lambda plan: PredictiveDensity(plan.num_samples)), EIGHT_BY_ADAM
    ),
}
SLOW_TABLES, FINE_TABLES = (KIN8NM, POWERPLANT, AIR), (POWERPLANT, AIR, PARKING, PROTEIN)
TRIALS = COMPARED | {
    "the same, batches of 512 rows": Trial(weighted(1000), {}, (*SLOW_TABLES, PROTEIN, TRAFFIC, APPLIANCES)),
    "the same, batches of 256 rows": Trial(weighted(1000), {"batch_size": 256}, (PROTEIN, TRAFFIC, APPLIANCES)),
    "the same with 512, over 4,000 steps": Trial(weighted(4000), {}, SLOW_TABLES),
    "the same with 512, over 16,000 steps": Trial(weighted(16000), {}, SLOW_TABLES),
    "the same with 512, fine structure counts 0.1": Trial(weighted(1000, 0.1), {}, FINE_TABLES),
    "the same with 512, fine structure counts 0.3": Trial(weighted(1000, 0.3), {}, FINE_TABLES),
    "10 units": Trial(Parts(), {"hidden_width": 10}, (KIN8NM, POWERPLANT, PROTEIN, TRAFFIC)),
    "13 units": Trial(Parts(), {"hidden_width": 13}, (TRAFFIC,)),
    "16 units": Trial(Parts(), {"hidden_width": 16}, (POWERPLANT, PARKING)),
}


def fitted(name: str, table: str, run: Callable[..., dict] = trial, **limits) -> dict:
    """Return the figures of a trial on a table, with a limit of time or of steps."""
    num_inputs, (parts, settings, _) = load(table)[0].shape[1], TRIALS[name]
    settings = {**USUAL, **settings, **limits}
    settings = {key: value(num_inputs) if callable(value) else value for key, value in settings.items()}
    return run(table, parts=parts, **settings)


def run_case(name: str, table: str, budgets: list[int]) -> None:
    """Print a line for a fit of each budget of seconds, after two short fits that fill the cache."""
    for _ in range(2):
        fitted(name, table, max_time=3)
    for budget in budgets:
        forget_programs()
        figures = fitted(name, table, restarted if name == RESTARTED else trial, max_time=budget)
        print(json.dumps({"trial": name, "table": table, "budget": budget, **figures}), flush=True)


def main() -> None:
    """Run all cases that have no line yet, one on each core at a time."""
    lines = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
    known = {(line["trial"], line["table"], line["budget"]) for line in lines}
    cases = [(name, table, BUDGETS) for name, one in TRIALS.items() for table in one.tables]
    cases += [(name, table, SECONDS) for name, table in product(COMPARED, (KIN8NM, POWERPLANT))]
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def run(case: tuple[str, str, list[int]]) -> None:
        name, table, budgets = case
        core = cores.get()
        with tempfile.TemporaryDirectory() as cache:
            command = ["taskset", "--cpu-list", str(core), sys.executable, "-m", "benchmarks.objectives", name, table]
            environment = {**os.environ, "OVERTONE_CACHE": cache}
            ended = subprocess.run([*command, *map(str, budgets)], capture_output=True, text=True, env=environment)
        cores.put(core)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        if ended.returncode:
            reason = " ".join(ended.stderr.splitlines()[-1:])[:200]
            lines = [json.dumps({"trial": name, "table": table, "budget": budgets[-1], "failed": reason})]
        with PATH.open("a") as file:
            file.write("".join(line + "\n" for line in lines))
        print(*lines, sep="\n", flush=True)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        list(pool.map(run, [case for case in cases if (*case[:2], case[2][-1]) not in known]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_case(sys.argv[1], sys.argv[2], list(map(int, sys.argv[3:])))
    else:
        main()
