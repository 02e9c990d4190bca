"""Train on a simulator in another process: a point in the plane, in NumPy, without JAX."""

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

import elites

STEPS = 25


def simulator(pipe: Connection) -> None:
    """Run episodes of as many points as asked: observations out, actions in."""
    while (count := pipe.recv()) is not None:
        place = np.zeros((count, 2))
        pipe.send(np.column_stack([place, np.zeros(count)]))
        for step in range(1, STEPS + 1):
            action = pipe.recv()
            place = np.clip(place + 0.1 * action, -1, 1)
            reward = 1 - 0.5 * np.sum(action**2, axis=1)
            pipe.send((np.column_stack([place, np.full(count, step / STEPS)]), reward))


def evaluate(asked, pipe: Connection):
    """Run an episode for every row of a request. Returns what `tell` takes."""
    pipe.send(len(asked))
    observations, actions, rewards = [pipe.recv()], [], []
    for _ in range(STEPS):
        actions.append(asked.act(observations[-1]))
        pipe.send(actions[-1])
        observation, reward = pipe.recv()
        observations.append(observation)
        rewards.append(reward)
    seen, done, paid = np.stack(observations, 1), np.stack(actions, 1), np.stack(rewards, 1)
    episodes = [
        elites.Episode(o, a, r, state_descriptors=o[:-1, :2])
        for o, a, r in zip(seen, done, paid, strict=True)
    ]
    return paid.sum(axis=1), seen[:, -1, :2], episodes


def search(algorithm: str, iterations: int, save: str | None = None, **hyperparameters):
    """Search with any algorithm, saving after every exchange, and return the search."""
    point = elites.ExternalTask(
        "point",
        observation_size=3,
        action_size=2,
        episode_length=STEPS,
        descriptor_low=(-1.0, -1.0),
        descriptor_high=(1.0, 1.0),
        deterministic=True,
    )
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=simulator, args=(there,))
    process.start()
    run = elites.ask_tell(point, algorithm, **hyperparameters)
    while run.iteration <= iterations:
        asked = run.ask()
        fitness, descriptors, episodes = evaluate(asked, here)
        run.tell(fitness, descriptors, episodes=episodes, asked=asked)
        if save:
            run.save(save)
    here.send(None)
    process.join()
    return run


if __name__ == "__main__":
    run = search("dcg_me", 50, cells=64, batch_size=32, critic_steps=100, pg_steps=20)
    print(run.archive, f"QD-score {run.archive.qd_score:.0f}")
    print(run.archive.nearest([0.5, -0.5]))
