"""Learning rates that depend on how many steps there will be, which a clock predicts again and again.

The loop tells the optimiser the step, the planned number of steps and a factor for shorter steps after a divergence.
Ordinary Optax optimisers ignore all three; `planned` makes one that multiplies its updates by them.
"""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

WARM_UP_STEPS = 100  # at most, and at most a quarter of all
DECAY_SHARE = 0.5  # of all steps, at the end


def warm_up_and_decay(step: Array, steps: Array) -> Array:
    """Return a factor that rises over the first steps, stays at 1, and falls as a cosine to a hundredth at the end."""
    rise = (step + 1) / jnp.minimum(WARM_UP_STEPS, 1 + steps // 4)
    left = jnp.clip((steps - step) / (DECAY_SHARE * steps), 0, 1)
    return jnp.minimum(rise, 1) * (0.505 - 0.495 * jnp.cos(jnp.pi * left))


def planned(
    optim: optax.GradientTransformation, schedule: Callable[[Array, Array], Array] = warm_up_and_decay
) -> optax.GradientTransformationExtraArgs:
    """Return the optimiser with its updates times schedule(step, steps), and times the loop's factor."""
    inner = optax.with_extra_args_support(optim)

    def update(updates, state, params=None, *, step, steps, factor, **others):
        updates, state = inner.update(updates, state, params, **others)
        scale = factor * schedule(step, steps)
        return jax.tree.map(lambda u: (scale * u).astype(u.dtype), updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)  # type: ignore[arg-type]


@lru_cache(maxsize=64)  # one object for each setting, so that the compiled training loop is shared
def planned_adam(learning_rate: float) -> optax.GradientTransformationExtraArgs:
    """Return Adam with a warm-up and a decay over the planned steps."""
    return planned(optax.adam(learning_rate))


@lru_cache(maxsize=64)
def plain_adam(learning_rate: float) -> optax.GradientTransformationExtraArgs:
    """Return Adam with one rate from the first step to the last, but for shorter steps after a divergence."""
    return planned(optax.adam(learning_rate), lambda step, steps: jnp.ones(()))
