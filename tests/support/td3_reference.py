"""TD3 in NumPy and 64 bits, with back-propagation and Adam written out: slow and independent.

Parameters are flat vectors in the documented order: layer by layer, the kernel [inputs, outputs]
row by row, then the bias. Hidden layers are ReLU, the output is tanh or linear.
"""

from __future__ import annotations

import itertools

import numpy as np


class Network:
    def __init__(self, sizes, output):
        self.sizes, self.output = sizes, output

    def layers(self, parameters):
        start, layers = 0, []
        for inputs, outputs in itertools.pairwise(self.sizes):
            kernel = parameters[start : start + inputs * outputs].reshape(inputs, outputs)
            start += inputs * outputs
            layers.append((kernel, parameters[start : start + outputs]))
            start += outputs
        assert start == len(parameters)
        return layers

    def forward(self, parameters, x):
        """Return the outputs [N, outputs] and the activations that `backward` needs."""
        activations = [x]
        layers = self.layers(parameters)
        for i, (kernel, bias) in enumerate(layers):
            x = x @ kernel + bias
            if i < len(layers) - 1:
                x = np.maximum(x, 0.0)
            elif self.output == "tanh":
                x = np.tanh(x)
            activations.append(x)
        return x, activations

    def __call__(self, parameters, x):
        return self.forward(parameters, x)[0]

    def backward(self, parameters, activations, gradient):
        """Return dL/d(parameters) [P] and dL/d(input) [N, inputs] for dL/d(output) [N, outputs]."""
        layers = self.layers(parameters)
        parts = []
        for i in reversed(range(len(layers))):
            output = activations[i + 1]
            if i < len(layers) - 1:
                gradient = gradient * (output > 0)
            elif self.output == "tanh":
                gradient = gradient * (1.0 - output**2)
            parts.append((activations[i].T @ gradient, gradient.sum(0)))
            gradient = gradient @ layers[i][0].T
        flat = [np.concatenate([kernel.reshape(-1), bias]) for kernel, bias in reversed(parts)]
        return np.concatenate(flat), gradient


class Adam:
    def __init__(self, rate, b1=0.9, b2=0.999, eps=1e-8):
        self.rate, self.b1, self.b2, self.eps = rate, b1, b2, eps
        self.m = self.v = 0.0
        self.t = 0

    def step(self, gradient):
        """Return the change of the parameters."""
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * gradient
        self.v = self.b2 * self.v + (1 - self.b2) * gradient**2
        m = self.m / (1 - self.b1**self.t)
        v = self.v / (1 - self.b2**self.t)
        return -self.rate * m / (np.sqrt(v) + self.eps)


def ascend_value(policy, parameters, critic, critic_parameters, observation, condition, seen):
    """Return the gradient of -mean Q(s, pi(s) | d') for a policy, which sees d' only if `seen`."""
    inputs = np.concatenate([observation, condition], 1) if seen else observation
    action, policy_activations = policy.forward(parameters, inputs)
    _, activations = critic.forward(
        critic_parameters, np.concatenate([observation, action, condition], 1)
    )
    n = len(observation)
    _, on_inputs = critic.backward(critic_parameters, activations, np.full((n, 1), -1.0 / n))
    start = observation.shape[1]
    on_action = on_inputs[:, start : start + action.shape[1]]
    return policy.backward(parameters, policy_activations, on_action)[0]


class Learner:
    """The parameters of one learner, and its step on one batch."""

    def __init__(self, config, actor, critics):
        self.c = config
        self.actor_network = Network(config.actor.sizes, "tanh")
        self.critic_network = Network(config.critic.sizes, "linear")
        self.actor, self.target_actor = actor.copy(), actor.copy()
        self.critics, self.target_critics = critics.copy(), critics.copy()
        self.actor_adam = Adam(config.actor_rate)
        self.critic_adams = [Adam(config.critic_rate) for _ in critics]

    def target(self, batch, noise):
        """y = S(d, d') r + discount (1 - done) min_i Q'_i(s', clip(pi'(s' | d') + noise) | d')"""
        c = self.c
        condition = batch["target"]
        seen = [batch["next_observation"], *([condition] if c.actor_conditioned else [])]
        action = self.actor_network(self.target_actor, np.concatenate(seen, 1))
        noise = np.clip(c.smoothing_noise * noise, -c.smoothing_clip, c.smoothing_clip)
        action = np.clip(action + noise, -1.0, 1.0)
        inputs = np.concatenate([batch["next_observation"], action, condition], 1)
        values = [self.critic_network(q, inputs)[:, 0] for q in self.target_critics]
        distance = np.sqrt(((batch["descriptor"] - condition) ** 2).sum(1))
        reward = np.exp(-distance / c.lengthscale) * batch["reward"]
        return reward + c.discount * (1 - batch["done"]) * np.minimum(*values)

    def step(self, batch, noise, with_actor, critic_after=False):
        """Take one step. `critic_after` is a mistake: the actor ascends the updated critic."""
        c, n = self.c, len(batch["reward"])
        y = self.target(batch, noise)
        inputs = np.concatenate([batch["observation"], batch["action"], batch["target"]], 1)
        before = self.critics.copy()
        for i, adam in enumerate(self.critic_adams):
            value, activations = self.critic_network.forward(before[i], inputs)
            error = (value[:, 0] - y) * (1 - batch["truncation"])
            gradient = (2.0 * error * (1 - batch["truncation"]) / n)[:, None]
            gradient, _ = self.critic_network.backward(before[i], activations, gradient)
            self.critics[i] = before[i] + adam.step(gradient)
        tau = c.target_rate
        self.target_critics = (1 - tau) * self.target_critics + tau * self.critics
        if with_actor:
            gradient = ascend_value(
                self.actor_network, self.actor, self.critic_network,
                (self.critics if critic_after else before)[0],
                batch["observation"], batch["target"], c.actor_conditioned,
            )  # fmt: skip
            self.actor = self.actor + self.actor_adam.step(gradient)
            self.target_actor = (1 - tau) * self.target_actor + tau * self.actor
