"""What would have to change before another K wins: one number per cause, and the K that would win.

Candidates are compared by τ(K) / t(K), tokens per second; the plain step cancels. Only K outside the plateau count as another
K: inside it the choice does not matter. `step_time_factor`: the steps of the whole plateau would have to be this much slower.
`alpha_factor_down`, `alpha_factor_up`: every conditional acceptance α_i multiplied by this factor (never above 1).
`host_s_added`: seconds added to every step alike, which favours larger K. `…_winner` is the K that then wins.
"""

import numpy as np

from .survival import Array, Mask, Whole

_FACTORS_UP = np.geomspace(1.0, 2.0, 281)[1:]
_FACTORS_DOWN = np.geomspace(1.0, 0.25, 561)[1:]


def _alpha_of_curve(tau_curve: Array) -> Array | None:
    increments = np.diff(tau_curve)
    if np.any(increments < 0) or np.any(increments > 1 + 1e-9):
        return None
    previous = np.concatenate([[1.0], increments[:-1]])
    return np.divide(increments, previous, out=np.zeros_like(increments), where=previous > 0)


def _first_flip(alpha: Array, factors: Array, block_sizes: Whole, step_s: Array, is_rival: Mask) -> tuple[float, int] | None:
    survival = np.cumprod(np.minimum(alpha[None, :] * factors[:, None], 1.0), axis=1)
    tau = np.concatenate([np.ones((len(factors), 1)), 1.0 + np.cumsum(survival, axis=1)], axis=1)[:, block_sizes - 1]
    winners = np.argmax(tau / step_s, axis=1)
    flips = np.flatnonzero(is_rival[winners])
    return (float(factors[flips[0]]), int(block_sizes[winners[flips[0]]])) if flips.size else None


def sensitivity(
    block_sizes: Whole, tau: Array, step_s: Array, best: int, plateau: tuple[int, int], tau_curve: Array
) -> dict[str, float]:
    """Factors and seconds at which another of the candidates wins (see the module); a cause that cannot flip is left out.

    `best` is an index into the candidates; `tau_curve` holds τ(1) … τ(largest candidate).
    """
    result: dict[str, float] = {}
    is_rival = (block_sizes < plateau[0]) | (block_sizes > plateau[1])
    others = np.flatnonzero(is_rival)
    if not others.size:
        return result
    rate = tau / step_s
    runner_up = others[np.argmax(rate[others])]
    result["step_time_factor"] = float(rate[best] / rate[runner_up])
    result["step_time_winner"] = float(block_sizes[runner_up])
    longer = others[tau[others] > tau[best]]
    if longer.size:
        seconds = (tau[best] * step_s[longer] - tau[longer] * step_s[best]) / (tau[longer] - tau[best])
        first = int(np.argmin(seconds))
        result["host_s_added"] = float(max(seconds[first], 0.0))
        result["host_s_winner"] = float(block_sizes[longer[first]])
    alpha = _alpha_of_curve(tau_curve)
    if alpha is None:
        return result
    for name, factors in (("up", _FACTORS_UP), ("down", _FACTORS_DOWN)):
        flip = _first_flip(alpha, factors, block_sizes, step_s, is_rival)
        if flip is not None:
            result[f"alpha_factor_{name}"], result[f"alpha_winner_{name}"] = flip[0], float(flip[1])
    return result
