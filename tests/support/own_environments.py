"""Gymnasium environments that behave well or badly, for tests of worker processes.

They run in those processes, so they learn from the environment's variables what to do.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

LENGTH = 25
DEATHS = "ELITES_TESTS_DEATHS"  # a file that gets a byte for every death
DEADLY = "ELITES_TESTS_DEADLY"  # number of deaths in all
WAITING = "ELITES_TESTS_WAITING"  # a folder that gets a file for every process that waits
HANGING = 7  # seed of an episode that never ends


class Point(gymnasium.Env):
    """The task point_omni, written for Gymnasium: the same sizes, dynamics, reward and descriptor.

    The bounds of its actions are not those of the task, so that they have to be mapped.
    """

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Box(np.float32([-2.0, 1.0]), np.float32([2.0, 3.0]))
    seeded = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = np.zeros(2), 0.0
        if self.seeded:
            self.place = self.np_random.uniform(-0.1, 0.1, 2)
        return self.observation(), {}

    def step(self, action):
        action = (action - [0.0, 2.0]) / [2.0, 1.0]
        self.place = np.clip(self.place + 0.1 * action, -1.0, 1.0)
        self.time += 1.0 / LENGTH
        return self.observation(), 1.0 - 0.5 * np.sum(action**2), False, False, {}

    def observation(self):
        return np.array([*self.place, self.time])


def place(env, observation):
    """Descriptor of all environments of this file."""
    return env.unwrapped.place


def point():
    return Point()


def seeded_point():
    made = Point()
    made.seeded = True
    return made


class Dying(Point):
    """Kills its process in the third step, until that has happened as often as it is told to."""

    def step(self, action):
        if self.time > 2.5 / LENGTH:
            deaths = Path(os.environ[DEATHS])
            if deaths.stat().st_size < int(os.environ[DEADLY]):
                with deaths.open("ab") as file:
                    file.write(b"x")
                print("the last words of the simulator", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Failing(Point):
    def step(self, action):
        raise RuntimeError("the motor is broken\nand more")


class Diverging(Point):
    """Has a reward that is not a number after the point has moved far to the right."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.nan if self.place[0] > 0.2 else reward, *rest


class Starting(Point):
    """Starts a process of its own, which does not end by itself and has the same output."""

    def __init__(self):
        wait(subprocess.Popen(["sleep", "600"]).pid)


class Waiting(Starting):
    """Never ends a step."""

    def step(self, action):
        wait(os.getpid())
        time.sleep(10_000)


def wait(pid):
    (Path(os.environ[WAITING]) / str(pid)).touch()


class Hanging(Point):
    """Never ends an episode with one seed."""

    def reset(self, *, seed=None, options=None):
        self.hangs = seed == HANGING
        return super().reset(seed=seed)

    def step(self, action):
        if self.hangs:
            time.sleep(10_000)
        return super().step(action)


class DictionaryPoint(Point):
    observation_space = Dict({"place": Box(-1.0, 1.0, (2,))})


class DiscretePoint(Point):
    action_space = Discrete(3)


class UnboundedPoint(Point):
    action_space = Box(-np.inf, np.inf, (2,))


def dying():
    return Dying()


def dying_at_start():
    print("cannot open the simulator", file=sys.stderr, flush=True)
    os._exit(7)


def failing():
    return Failing()


def diverging():
    return Diverging()


def starting():
    return Starting()


def waiting():
    return Waiting()


def hanging():
    return Hanging()


def dictionary():
    return DictionaryPoint()


def discrete():
    return DiscretePoint()


def unbounded():
    return UnboundedPoint()


def nothing():
    return None
