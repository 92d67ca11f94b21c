"""Other objectives, draws and optimisers in place of the default's: the figures of docs/inference.md.

One JSON line for each fit in results/objectives.jsonl; cases that are there are not run again. Each is a process of its
own on one core, with a cache of its own, so that the program of one trial is never taken for that of another.

    OVERTONE_DATA=folder python -m benchmarks.objectives
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product
from queue import Queue

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from benchmarks.lines import RESULTS
from benchmarks.tables import load
from benchmarks.trial import trial
from overtone import build, natural, train
from overtone import fit as loop
from overtone import model as deep
from overtone.compiling import forget_programs
from overtone.layers import GPLayer
from overtone.model import DeepGP
from overtone.train import ADDED_WEIGHT

TABLES, SECONDS = ("uci_kin8nm", "uci_powerplant"), 40
MORE_TABLES = (
    "air_beijing_pm25",
    "parking_birmingham",
    "uci_protein",
    "traffic_metro_interstate",
    "appliances_energy",
)
DRAWS, BATCH = 4, 1024
ANNEALED, SMALLER, SMALLEST = "annealed divergence", "the same, batches of 512 rows", "the same, batches of 256 rows"
SLOWER, SLOWEST = "the same with 512, over 4,000 steps", "the same with 512, over 16,000 steps"
LIGHT = {f"the same with 512, fine structure counts {weight}": weight for weight in (0.1, 0.3)}
PAIRED = "the default, with pairs of inputs"
TODAY, MUON, RESTARTED = "the default", "the default, Muon", "the default, best of three starts"
STARTS, SHORT = 3, 0.1  # starts, and the share of the time that each has to show what it is worth
SHAPES = {  # of layers, given the number of inputs; D units, at most 10, unless it says something else
    "D units": lambda D: {},
    "D directions": lambda D: {"n_projections": D},
    "4D + 1 directions": lambda D: {"n_projections": 4 * D + 1},
    "D/2 units": lambda D: {"hidden_width": max(1, min(D, 10) // 2)},
    "2D units": lambda D: {"hidden_width": 2 * min(D, 10)},
    "10 units": lambda D: {"hidden_width": 10},
    "13 units": lambda D: {"hidden_width": 13},
    "16 units": lambda D: {"hidden_width": 16},
    "Matern-5/2": lambda D: {"kernel": "matern52"},
    "gradients clipped": lambda D: {},
    "directions along which the target varies": lambda D: {},
}
CLIPPED, INFORMED = list(SHAPES)[-2:]
PAIRS = {
    "uci_kin8nm": tuple((j, j + 1) for j in range(7)),  # neighbouring joints of an arm
    "uci_powerplant": tuple(combinations(range(4), 2)),
    "traffic_metro_interstate": ((1, 2), (0, 3)),  # hour and day of the week, date and day of the year
}
CLOSER = [  # by the clock of the quality benchmark, on other tables
    *product(("the default before", ANNEALED), MORE_TABLES),
    *product((SMALLER, SMALLEST), MORE_TABLES[2:]),
    *product((SMALLER, SLOWER, SLOWEST), (*TABLES, MORE_TABLES[0])),
    *product(LIGHT, (TABLES[1], *MORE_TABLES[:3])),
    *product([PAIRED], PAIRS),
    *product(["2D units"], (TABLES[0], *MORE_TABLES)),
    *product(["10 units"], (*TABLES, "uci_protein", "traffic_metro_interstate")),
    *product(["16 units"], ("uci_powerplant", "parking_birmingham")),
    ("13 units", "traffic_metro_interstate"),
]
PATH = RESULTS / "objectives.jsonl"


def importance_weighted() -> None:
    """log mean exp over the draws of the hidden layers in place of the mean, in the bound and in the sites."""
    plain = natural.expected_log_prob

    def weighted(likelihood, y, mean, var):
        values = plain(likelihood, y, mean, var)
        by_draw = values.reshape(DRAWS, -1, values.shape[-1])
        whole = jax.nn.logsumexp(by_draw, axis=0) - jnp.log(DRAWS).astype(values.dtype)
        return jnp.tile(whole, (DRAWS, 1))

    natural.expected_log_prob = weighted


def predictive() -> None:
    """The log density of the prediction in place of the expected log likelihood, as in a deep sigma point process."""

    def elbo(model, key, X, y, *, num_data, num_samples: int):
        model = deep.unwrap(model)
        inputs, mean, var = model.propagate(model.draw_noise(key, num_samples, X.shape[0]), X)[-1]
        each = model.likelihood_at(inputs).log_predictive(y, mean, var)
        whole = jnp.sum(jax.nn.logsumexp(each, axis=0) - jnp.log(num_samples).astype(X.dtype))
        return num_data / X.shape[0] * whole - model.kl()

    train.elbo = elbo


def function_draws(divergence: str = "closed") -> None:
    """One function of each hidden layer for all rows of a step, instead of a draw for each row.

    The divergence in closed form, or of this draw, or without the derivative by q's parameters ("landing").
    """
    rowwise, closed, found = DeepGP.propagate, GPLayer.kl, []

    class Key(list):
        pass

    def draw_noise(self, key, num_samples, num_rows):
        return Key([key])

    def propagate(self, noise, X):
        if not isinstance(noise, Key):
            return rowwise(self, noise, X)
        H, passes = X, []
        for i, layer in enumerate(self.layers[:-1]):
            v_key, row_key = jax.random.split(jax.random.fold_in(noise[0], i))
            Z, place = layer.place(H)
            v, log_ratio = _draw(layer.q, v_key, landing=divergence == "landing")
            A = layer.features.whitened(layer.kernel, place)
            var = layer.features.unexplained(layer.kernel, A, place) + layer.noise
            eps = jax.random.normal(row_key, (len(X), layer.num_outputs), X.dtype)
            added = layer.added(H) if layer.added else (0.0, 0.0)
            found.append(log_ratio + (closed(layer.added) if layer.added else 0.0))
            v = jnp.swapaxes(v, 0, 1).reshape(layer.num_outputs, -1)
            passes.append((H[None], *(part[None] for part in layer(H))))
            H = layer.mean_function(Z) + A.T @ v.T + jnp.sqrt(var[:, None] + added[1]) * eps + added[0]
        return [*passes, (H[None], *(part[None] for part in self.layers[-1](H)))]

    DeepGP.draw_noise, DeepGP.propagate = draw_noise, propagate
    if divergence != "closed":
        GPLayer.kl = lambda self, *_: found.pop() if found else closed(self)


def _draw(q, key, *, landing: bool):
    """v ~ q, and log q(v) - log p(v); for q = Full."""
    U, weights = q.factor
    eps = jax.random.normal(key, q.mean.shape, q.mean.dtype)
    v = q.mean + jnp.einsum("bmpk,bpk->bpm", U, jnp.sqrt(weights) * eps)
    log_diag = q.log_diag
    if landing:
        U, log_diag, mean = jax.lax.stop_gradient((U, log_diag, q.mean))
        L = jnp.swapaxes(U, 1, 2)  # (B, P, M, M)
        eps = jax.scipy.linalg.solve_triangular(L, (v - mean)[..., None], lower=True, unit_diagonal=True)[..., 0]
        eps = eps * jnp.exp(-log_diag)
    return v, jnp.sum(0.5 * v**2 - 0.5 * eps**2 - log_diag)


def optimiser(name: str) -> None:
    train.adam = lambda rate: getattr(optax, name)(rate)


def muon() -> None:
    """Muon, a relative of Shampoo, for projections and the means of q, and Adam for the rest.

    Its steps are orthogonal matrices, and as large as Adam's: Liu et al. (2025) propose a root mean square of 0.2.
    """
    loop.LARGE = 2  # numbers: arrays are not packed into one vector, which has no rows and columns

    def matrices(params):
        def axes(array):
            is_matrix = array.ndim in (2, 3) and min(array.shape[-2:]) > 1
            return contrib.MuonDimensionNumbers(array.ndim - 1, array.ndim - 2) if is_matrix else None

        return jax.tree.map(axes, params)

    train.adam = lambda rate: contrib.muon(rate, muon_weight_dimension_numbers=matrices, consistent_rms=0.2)


def restarted(table: str, max_time: float, **settings) -> dict:
    """The best of three starts, by the held-out rows after a tenth of the time each, trained for the rest of it."""
    starts = [trial(table, max_time=SHORT * max_time, random_state=start, **settings) for start in range(STARTS)]
    best = max(range(STARTS), key=lambda start: starts[start]["held_out"])
    found = trial(table, max_time=(1 - STARTS * SHORT) * max_time, random_state=best, **settings)
    return {**found, "starts": [start["held_out"] for start in starts], "chosen": best}


def clipped() -> None:
    """No gradient of the loss per row is longer than 1."""
    train.adam = lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def informed() -> None:
    """Directions that start at random, but along gradients of a ridge regression of the target on random waves."""
    plain_build, plain, targets = train.build, build.directions, []

    def remembering(config, X, y):
        targets[:] = [build.seen(config, y)]
        return plain_build(config, X, y)

    def directions(Z, num, seed):
        weight, rng = plain(Z, num, seed), np.random.default_rng(seed)
        dims, y = Z.shape[1], np.nan_to_num(targets[0][:: 1 + len(targets[0]) // build.START_ROWS, 0])
        keep = rng.permutation(len(Z))[:10_000]
        Z, y = Z[keep] - 0.5, y[keep] - y.mean()
        slopes = rng.standard_normal((dims, 500)) * rng.choice((1, 2, 4, 8), 500) / dims**0.5
        phase = Z @ slopes + 2 * np.pi * rng.random(500)
        waves = np.cos(phase)
        gram = waves.T @ waves + 1e-3 * len(Z) * np.eye(500)
        gradients = -(np.sin(phase) * np.linalg.solve(gram, waves.T @ y)) @ slopes.T  # (N, D)
        chosen = gradients[rng.integers(len(Z), size=max(0, num - dims))].T
        chosen = chosen / np.linalg.norm(chosen, axis=0)
        reach = np.max(np.abs(Z @ chosen), axis=0, initial=0)
        return np.concatenate([weight[:, :dims], chosen / (2 * reach)], axis=1) if num > dims else weight

    train.build, build.directions = remembering, directions


def divergence(annealed: float = train.ANNEALED, added_weight: float = 1.0) -> None:
    train.ANNEALED, train.ADDED_WEIGHT = annealed, added_weight


def usual() -> None:
    """The divergence as it counts by default."""
    divergence(added_weight=ADDED_WEIGHT)


BY_THE_CLOCK = (SMALLER, SMALLEST, SLOWER, SLOWEST, *LIGHT, PAIRED, "10 units", "13 units", "16 units")
GAUSSIAN = {"output": "adam", "likelihood": "gaussian"}
TRIALS = {
    "the default before": (lambda: None, {}),
    ANNEALED: (divergence, {}),
    SMALLER: (divergence, {"batch_size": 512}),
    SMALLEST: (divergence, {"batch_size": 256}),
    SLOWER: (lambda: divergence(4000), {"batch_size": 512}),
    SLOWEST: (lambda: divergence(16000), {"batch_size": 512}),
    **{name: (lambda weight=w: divergence(added_weight=weight), {"batch_size": 512}) for name, w in LIGHT.items()},
    PAIRED: (usual, {"batch_size": 512}),
    TODAY: (usual, {"batch_size": 512}),
    MUON: (lambda: (usual(), muon()), {"batch_size": 512}),
    RESTARTED: (usual, {"batch_size": 512}),
    **{name: (usual, {"batch_size": 512}) for name in SHAPES},
    CLIPPED: (lambda: (usual(), clipped()), {"batch_size": 512}),
    INFORMED: (lambda: (usual(), informed()), {"batch_size": 512}),
    "4 draws": (lambda: None, {"n_samples": DRAWS}),
    "4 draws, importance-weighted": (importance_weighted, {"n_samples": DRAWS}),
    "one function for all rows": (function_draws, {}),
    "the same, sampled divergence": (lambda: function_draws("sampled"), {}),
    "the same, sticking the landing": (lambda: function_draws("landing"), {}),
    "nadam": (lambda: optimiser("nadam"), {}),
    "adabelief": (lambda: optimiser("adabelief"), {}),
    "Gaussian noise, output layer by Adam": (lambda: None, GAUSSIAN),
    "the same, 8 draws": (lambda: None, {**GAUSSIAN, "n_samples": 8}),
    "the same, 8 draws, predictive density": (predictive, {**GAUSSIAN, "n_samples": 8}),
}


def one(name: str, table: str, budgets: list[int]) -> None:
    change, settings = TRIALS[name]
    divergence(0.5)  # steps: the divergence of the hidden layers counts whole from the second one on
    change()
    num_inputs = load(table)[0].shape[1]
    settings = {"batch_size": BATCH, "hidden_width": min(num_inputs, 10), **settings}
    settings |= {"pairs": PAIRS[table]} if name == PAIRED else {}
    settings |= SHAPES[name](num_inputs) if name in SHAPES else {}
    for _ in range(2):
        trial(table, max_time=3, **settings)  # compiles
    for budget in budgets:
        forget_programs()
        found = (restarted if name == RESTARTED else trial)(table, max_time=budget, **settings)
        print(json.dumps({"trial": name, "table": table, "budget": budget, **found}), flush=True)


def main() -> None:
    done = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
    cases = [(*case, [SECONDS]) for case in product(TRIALS, TABLES) if case[0] not in BY_THE_CLOCK]
    cases = [(*case, [30, 120]) for case in CLOSER] + cases
    keys = {(line["trial"], line["table"], line["budget"]) for line in done}
    cases = [(name, table, budgets) for name, table, budgets in cases if (name, table, budgets[-1]) not in keys]
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
        list(pool.map(run, cases))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        one(sys.argv[1], sys.argv[2], list(map(int, sys.argv[3:])))
    else:
        main()
