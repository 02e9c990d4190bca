"""Train from Python: one call, or your own loop.

    run = elites.train("ant_omni", "dcg_me", seeds=4, evaluations=100_000)
    run.actor(observation, descriptor)     # the distilled policy; descriptor in task units
    run.archive.nearest(descriptor)        # an elite to deploy

    loop.py        train() and build()
    optimising.py  optimize(): functions of plain vectors
    seeds.py       an algorithm over a batch of seeds
    devices.py     devices that the seeds are spread over
    linear_algebra.py  where they have to be one device
    stages.py      how its stages are compiled: separately, or an iteration as one program
    memory.py      keep freed memory in the process
    keys.py        random keys of seeds and iterations
    sizes.py       shapes of arrays and the memory that they need
    starting.py    start from the archive of another run
    outside.py     the stage of a task whose episodes run outside of JAX
    results.py     what training returns: archive, actor, metrics
    elites.py      the archive as a sequence of elites
    ask_tell.py    searches whose policies are evaluated by another program or a robot
    episodes.py    recorded episodes as transitions to learn from
    searches.py    save and load such a search
    builders.py    algorithms by name, by FILE.py:FUNCTION, or as functions
    calibrating.py requests at which an actor hits the cells of an archive
    switching.py   elites or actor, whichever is known to come closer to a descriptor
    display.py     progress of training on the terminal
    reporting.py   progress line, loggers and callbacks
    stopping.py    stop training from a callback or with Ctrl-C

A level below, `elites.build(task, name)` gives `start(key)` and `step(state, key)`.
"""

from elites.training.ask_tell import Asked, AskTell, ExternalTask, ask_tell
from elites.training.display import notes_on_axes
from elites.training.episodes import Episode
from elites.training.keys import iteration_keys, reevaluation_keys, seed_keys
from elites.training.loop import build, iterations_for, train, train_algorithm
from elites.training.optimising import optimize
from elites.training.results import Actor, Elite, Elites, Place, Run, SeedResult, named
from elites.training.seeds import Batched
from elites.training.sizes import size_in_bytes
from elites.training.stopping import StopTraining, TrainingInterrupted
from elites.training.switching import Behaviour, Switcher

__all__ = [
    "Actor",
    "AskTell",
    "Asked",
    "Batched",
    "Behaviour",
    "Elite",
    "Elites",
    "Episode",
    "ExternalTask",
    "Place",
    "Run",
    "SeedResult",
    "StopTraining",
    "Switcher",
    "TrainingInterrupted",
    "ask_tell",
    "build",
    "iteration_keys",
    "iterations_for",
    "named",
    "notes_on_axes",
    "optimize",
    "reevaluation_keys",
    "seed_keys",
    "size_in_bytes",
    "train",
    "train_algorithm",
]
