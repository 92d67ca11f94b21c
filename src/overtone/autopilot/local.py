"""Whether the neighbours of a row know what the deep GP does not, by rows that training has not seen."""

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from overtone.autopilot.config import Config
from overtone.autopilot.names import LIKELIHOODS, part
from overtone.autopilot.policies import LOCAL
from overtone.autopilot.record import Plan
from overtone.gp.likelihoods import AbstractNoise, FlexibleNoise
from overtone.gp.model import DeepGP
from overtone.gp.neighbours import NeighbourGP
from overtone.inference.batches import random_rows
from overtone.inference.neighbours import fit_neighbours, said_by_neighbours, with_rows, with_tested_scale
from overtone.inference.objective import Rows
from overtone.inference.predictions import over_rows, scores_of_rows, usual_draws

Neighbours = tuple[NeighbourGP | None, ...]  # one for each output, where it pays


class Learned(NamedTuple):
    """A GP of scores for each output, where it pays, and what held-out rows say about it."""

    neighbours: Neighbours = ()
    why: str = ""


def may_have_neighbours(config: Config, output: str, likelihood: str, held_out: int) -> bool:
    """Return whether held-out rows are to decide about neighbours: of numbers, unless a user does not want them."""
    numbers = issubclass(part(LIKELIHOODS, likelihood), AbstractNoise | FlexibleNoise)
    able = numbers and output == "natural" and held_out > 0
    if config.neighbours == "yes" and not able:
        raise ValueError("neighbours='yes' needs targets that are numbers, output='natural' and some 2,000 rows.")
    usual = config.neighbours == "auto" and config.method == "id-dgp" and config.preset != "paper"
    return able and (usual or config.neighbours == "yes")


def learn_neighbours(model: DeepGP, key: Any, rows: Rows, held_out: Rows, plan: Plan) -> Learned:
    """Return the GPs of the scores that a model leaves at its training rows, tested on rows that it does not know.

    Once tested, these rows are neighbours like the others.
    """
    normal_scores(model, key, Rows(held_out.X[:1], held_out.y[:1]))  # compiled
    began = perf_counter()
    new = normal_scores(model, key, held_out)
    rate = len(new) / (perf_counter() - began)
    most = (
        LOCAL.max_rows if plan.seconds is None else min(LOCAL.max_rows, int(LOCAL.scores_share * plan.seconds * rate))
    )
    if most < LOCAL.min_rows:
        return Learned(why="There was no time to ask the neighbours of a row.")
    rows = random_rows(rows, most, plan.seed)
    known, limit = normal_scores(model, key, rows), LOCAL.fit_share * plan.seconds if plan.seconds else np.inf
    found, sentences = [], []
    for output, (scores, new_scores) in enumerate(zip(known.T, new.T, strict=True)):
        there, asked = np.isfinite(scores), np.isfinite(new_scores)
        if min(there.sum(), asked.sum()) < LOCAL.min_held_out:
            found.append(None)
            continue
        process = fit_neighbours(rows.X[there], scores[there], seed=plan.seed, seconds=limit / known.shape[1])
        process, nats = with_tested_scale(process, held_out.X[asked], new_scores[asked])
        error = np.std(nats) / len(nats) ** 0.5
        pays = np.mean(nats) > max(LOCAL.min_gain_nats, LOCAL.standard_errors * error)
        all_rows = np.concatenate([rows.X, held_out.X]), np.concatenate([scores, new_scores])
        found.append(with_rows(process, *all_rows) if pays else None)
        of, how = f" of output {output + 1}" if known.shape[1] > 1 else "", "are asked" if pays else "are not asked"
        sentences.append(
            f"Neighbours{of} {how}: they gain {np.mean(nats):.2f} nats per row (standard error {error:.2f}) on "
            f"{len(nats)} held-out rows."
        )
    return Learned(tuple(found) if any(process is not None for process in found) else (), " ".join(sentences))


def extended(neighbours: Neighbours, model: DeepGP, key: Any, rows: Rows) -> Neighbours:
    """Return the same GPs with the scores of further rows."""
    scores = normal_scores(model, key, rows).T
    return tuple(
        process and with_rows(process, np.concatenate([process.inputs, rows.X]), np.concatenate([process.scores, z]))
        for process, z in zip(neighbours, scores, strict=True)
    )


def normal_scores(model: DeepGP, key: Any, rows: Rows) -> np.ndarray:
    """Return the scores (N, P) of rows, NaN where there is no target."""
    draws = usual_draws(model)
    (scores,) = over_rows(lambda *chunk: scores_of_rows(model, key, draws, *chunk), *rows, draws=draws)
    return np.asarray(scores, float)


def of_neighbours(neighbours: Neighbours, Z: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return what makes the distribution of scores (`mixed`), each (N, P); N(0, 1) where neighbours are not asked."""
    zero, one = np.zeros(len(Z)), np.ones(len(Z))
    found = [
        (zero, one, one, 0.5 * one)
        if process is None
        else (*said_by_neighbours(process, Z), float(process.weight) * one)
        for process in neighbours
    ]
    return tuple(np.stack(part, axis=1).astype(Z.dtype) for part in zip(*found, strict=True))
