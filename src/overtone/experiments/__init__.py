"""The experiments of the paper, each run by one command: `overtone reproduce NAME`.

Every file is one experiment, written on the library's public interface. It has `cases`, each of which becomes a record;
`measure`, which makes the record of a case; `tables` and `figure`, which show records. Nothing else is imported here.
"""

from typing import NamedTuple


class Experiment(NamedTuple):
    """What an experiment shows, and how many hours one core takes for all of it."""

    shows: str
    hours: float


EXPERIMENTS = {
    "steps": Experiment("The multi-step function with its hidden layers (Figure 3 and the appendix).", 1.2),
    "audio": Experiment("Sub-band speech: error over inducing variables, and posteriors (Figures 1 and 4).", 5.5),
    "real-world": Experiment("Six tables with global structure, all methods (Figure 5 and its RMSE).", 8.6),
    "airline": Experiment("Flight delays, up to three million rows (Table 1).", 4.0),
    "uci": Experiment("Nine tables without global structure (appendix).", 2.2),
    "priors": Experiment("Draws from deep priors of one to ten layers (appendix).", 0.1),
    "efficiency": Experiment("Seconds of a gradient step, and seconds to a given error.", 0.6),
    "depth": Experiment("One to four layers of ID-DGP on two tables.", 1.1),
}
