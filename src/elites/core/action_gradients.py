"""The gradient of a critic's value with respect to the action, for many policies at once.

Needed by the PG variation, where all policies act at the same observations: the contributions of an
observation and of a target to the first layer are computed once and shared.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from elites.core import networks
from elites.core.networks import MLP, Layers

Array = jax.Array


def action_gradients(
    network: MLP,
    critic: Array,
    observation: Array,
    action: Array,
    target: Array,
    dtype: jnp.dtype | type = jnp.float32,
) -> Array:
    """Return the gradients dQ/da [n, N, A] of one critic with respect to the actions.

    n policies act on the same N observations. The actions are [n, N, A], the observations [N, O],
    and the target descriptors [n, D], one for each policy. The result equals the gradient of
    `td3.value`. For ReLU networks, it is computed with matrix products of type `dtype`.
    """
    (kernel, bias), *rest = networks.unflatten(network, critic)
    ends = (observation.shape[-1], observation.shape[-1] + action.shape[-1])
    of_observation, of_action, of_target = jnp.split(kernel, ends)
    shared = (observation @ of_observation + bias[None])[None] + (target @ of_target)[:, None]
    if network.activation == "relu":
        return _of_relu(shared, of_action, rest, action, dtype)
    return _of_any(network, shared, of_action, rest, action)


def _of_relu(
    shared: Array, of_action: Array, rest: Layers, action: Array, dtype: jnp.dtype | type
) -> Array:
    """Return the gradients dQ/da [n, N, A] of a critic with ReLU between its layers.

    `shared` [n, N, H] is what observation, target and bias add to the first layer, and `of_action`
    [A, H] the first layer's kernel for the action. `rest` are the other layers.
    """
    *hidden, (last, _) = rest
    last, largest = last[:, 0], jnp.finfo(dtype).max

    def product(x: Array, kernel: Array) -> Array:
        return jnp.dot(x, kernel.astype(dtype), preferred_element_type=dtype)

    layer = shared + product(action.astype(dtype), of_action)
    layer = jnp.clip(layer, 0.0, largest).astype(dtype)
    on = [layer > 0]
    for kernel, bias in hidden:
        sums = product(layer, kernel) + bias[None, None].astype(dtype)
        on.append(sums > 0)
        layer = jnp.clip(sums, 0.0, largest)
    # In units of the last layer's largest weight, so that no product overflows.
    unit = jnp.maximum(jnp.max(jnp.abs(last)), jnp.finfo(jnp.float32).tiny)
    error = jnp.where(on.pop(), (last / unit)[None, None].astype(dtype), 0)
    for kernel, _ in reversed(hidden):
        error = jnp.where(on.pop(), product(error, kernel.T), 0)
    return unit * jnp.dot(error, of_action.T.astype(dtype), preferred_element_type=jnp.float32)


def _of_any(network: MLP, shared: Array, of_action: Array, rest: Layers, action: Array) -> Array:
    """Return the gradients dQ/da [n, N, A] of a critic with any activation. See `_of_relu`."""
    activate = networks.ACTIVATIONS[network.activation]

    def values(action: Array) -> Array:
        layer = shared + action @ of_action
        for kernel, bias in rest:
            layer = activate(layer) @ kernel + bias[None, None]
        return layer[..., 0]

    found, pull_back = jax.vjp(values, action)
    return pull_back(jnp.ones_like(found))[0]
