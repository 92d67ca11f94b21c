"""How the paper trains: deep models by Adam at one rate, shallow ones by a quasi-Newton method where all rows fit."""

from overtone.autopilot.config import Config
from overtone.autopilot.policies import OBJECTIVE


def paper_output(depths: tuple[int, ...], complete: bool, num_rows: int, num_features: int) -> tuple[str, str]:
    """Return how the output layer's q(v) is found, and why."""
    if depths == (1,) and complete and num_rows * num_features**2 <= OBJECTIVE.quasi_newton_products:
        return "collapsed", "The paper trains shallow models by BFGS, and all rows fit: the closed form at every step."
    return "adam", "The paper trains all of a deep model by Adam, and shallow models whose rows are too many."


def paper_optimiser(config: Config, output: str) -> str:
    """Return the optimiser of a plan; "adam", with a warm-up and a decay, unless it is the paper's preset."""
    if config.preset != "paper":
        return "adam"
    return "l-bfgs" if output == "collapsed" and config.output == "auto" else "plain adam"
