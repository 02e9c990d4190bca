"""Keep a small model of a run, and evaluate its archives again.

A run directory is large, because it holds a replay buffer and hundreds of policies for each seed.
Its model has a few MB. It is a reduced run, see `reducing`: the actor and some elites of the best
seed, the map of the whole archive, and the metrics of that seed.

The archives of all seeds are evaluated again by this process, which did not train them. The tables
are in the folder of the last iteration, such as `evaluation_000003906/`. On the device of the
training, the descriptor error of an archive is 0 if the task is deterministic and repeatable.
"""

from __future__ import annotations

from pathlib import Path

from elites.files import RunError
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import evaluation, job, lock, sharing, signals
from elites.runs.directory import RunDirectory
from elites.runs.reducing import Excerpt
from elites.runs.rounding import NoElitesError
from elites.study.study import Item, Study
from elites.words import amount, counted, number


def keep(study: Study, item: Item) -> None:
    """Evaluate the archives of a run of a study again, and write the run's model.

    The run may be unfinished. Its newest checkpoint counts then. Prints what it found and kept. A
    signal raises `Interrupted` and leaves no incomplete model.
    """
    signals.end_on_signals()
    run = study.run(item)
    with lock.locked(run.path):
        pass  # another process that uses the run is noticed before the archives are evaluated
    job.choose_device(run.config().device)
    places = checkpoints.complete(run.checkpoints)
    if not places:
        raise RunError(f"{run.path} has no checkpoint, so there are no elites to keep")
    iteration = int(places[-1].name)
    folder = evaluation.reevaluate(run, iteration)
    if (error := evaluation.error_in_new_process(run)) is not None:
        print(f"descriptor error of the archives in a new process: {number(error)}, see {folder}")
    study.kept.mkdir(exist_ok=True)
    model = study.model(item, None if study.is_trained(item) else iteration)
    new = study.kept / f".{item.name}.zip"
    new.unlink(missing_ok=True)  # of a process that was killed
    kept = _pack(run, new, study.keeps_elites)
    new.replace(model)
    study.remove_models_of(item, other_than=model)
    size = amount(model.stat().st_size)
    print(f"kept {counted(len(kept.cells), 'elite')} of seed {kept.seed}: {model}, {size}")


def _pack(run: RunDirectory, model: Path, elites: int) -> Excerpt:
    """Write the model of a run with some of its elites, and return what it holds of the run.

    Networks are rounded to half precision if the task is deterministic, because only then can one
    tell which of them remain elites. They keep their precision if none of them does.
    """
    facts = directories.read_facts(run)
    if facts["deterministic"] and facts["observation_size"]:  # plain vectors observe nothing
        try:
            return sharing.pack_elites(run, model, elites, None, half_precision=True)
        except NoElitesError:
            print("no elite remains one with half precision, so the model has single precision")
    return sharing.pack_elites(run, model, elites, None)
