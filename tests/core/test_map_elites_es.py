"""MAP-Elites-ES against its equations.

It is driven from outside and told invented results, so that every choice can be checked: which
copies it asks for, the offspring that follows from their scores, and the parent it continues from.
"""

import functools

import numpy as np

import elites
from td3_reference import Adam

CELLS = 64
NAN, INF = np.nan, np.inf
SIGMA, RATE, L2, PAIRS, GENERATIONS = 0.02, 0.01, 0.02, 3, 2


@functools.cache
def strategy(task="point_omni"):
    return elites.build(
        task, "me_es", cells=CELLS, policy_hidden=(4,), es_samples=2 * PAIRS, es_repeats=3,
        es_generations=GENERATIONS,
    )  # fmt: skip


def novelty_of(points, memory, neighbours=10):
    distance = np.linalg.norm(points[:, None] - np.array(memory)[None], axis=-1)
    return np.sort(distance, axis=1)[:, :neighbours].mean(1)


class Walk:
    """A search that is told invented results, and what it should do with them.

    Every offspring lands in a cell of its own; fitness falls from one to the next.
    """

    def __init__(self, seed):
        self.search = elites.ask_tell("point_omni", strategy(), seed=seed)
        self.rng = np.random.default_rng(seed)
        centroids = np.asarray(self.search.state.archive.centroids)
        self.places = self.rng.permutation(centroids)
        first = self.search.ask().policies
        assert first.shape[0] == 1
        self.offspring = [first[0]]
        self.adam = Adam(RATE)
        self.generation = 0
        self.search.tell([100.0], self.places[:1])

    def results_of_copies(self):
        return self.rng.normal(size=2 * PAIRS), self.rng.uniform(-1, 1, (2 * PAIRS, 2)), None

    def step(self):
        """One generation: the copies asked for, and the offspring against the equations."""
        explore = (self.generation // GENERATIONS) % 2 == 0
        copies = np.float64(self.search.ask().policies)
        assert copies.shape[0] == 2 * PAIRS
        plus, minus = np.split(copies, 2)
        parent, noise = (plus + minus).mean(0) / 2, (plus - minus) / (2 * SIGMA)
        np.testing.assert_allclose(plus + minus, np.tile(2 * parent, (PAIRS, 1)), atol=1e-6)
        turn = self.generation > 0 and self.generation % GENERATIONS == 0
        if turn:
            self.adam = Adam(RATE)
        else:
            np.testing.assert_allclose(parent, self.offspring[-1], atol=1e-7)

        fitness, descriptors, valid = self.results_of_copies()
        self.search.tell(fitness, descriptors, valid)
        told = np.isfinite(fitness) & np.isfinite(descriptors).all(1)
        told &= True if valid is None else valid
        score = novelty_of(descriptors, self.places[: len(self.offspring)]) if explore else fitness
        order = np.argsort(np.where(told, score, -INF), kind="stable")
        ranks = np.empty(2 * PAIRS)
        ranks[order] = np.arange(2 * PAIRS)
        ranks = ranks / (2 * PAIRS - 1) - 0.5
        descent = -(ranks[:PAIRS] - ranks[PAIRS:]) @ noise / (2 * PAIRS * SIGMA) + L2 * parent
        expected = parent + self.adam.step(descent)

        offspring = self.search.ask().policies
        assert offspring.shape[0] == 1
        # A step is 0.01 long in every parameter, or nearly: this is 1 in 500 of it.
        np.testing.assert_allclose(offspring[0], expected, atol=2e-5)
        self.offspring.append(offspring[0])
        self.generation += 1
        number = self.generation
        self.search.tell([100.0 - number], self.places[number : number + 1])
        return turn, explore, parent, np.abs(offspring[0] - parent)

    def drawn(self, parent):
        """Which offspring, the first policy being number 0, a new parent is."""
        distance = [np.abs(parent - o).max() for o in self.offspring[: self.generation]]
        assert min(distance) < 1e-7
        return int(np.argmin(distance))


def test_map_elites_es_follows_its_equations():
    from_all, from_recent = set(), set()
    for seed in range(3):
        walk = Walk(seed)
        for _ in range(16):
            stored = len(walk.offspring)
            turn, explore, parent, change = walk.step()
            # With fresh momentum, and only then, every parameter moves by the learning rate.
            fresh = turn or stored == 1
            assert np.allclose(change, RATE, rtol=0.01) == fresh
            if not turn:
                continue
            number = walk.drawn(parent)
            if explore:
                novelty = novelty_of(walk.places[:stored], walk.places[:stored])
                assert number in np.argsort(-novelty)[:5]
            elif stored > 6:
                # Fitness falls: the fittest are the oldest, those of the last five the oldest of
                # them.
                assert number in (0, 1, stored - 5, stored - 4)
                (from_all if number < 2 else from_recent).add((seed, stored))
        # Modes alternate, explore first; nothing was displaced, so all are there in order.
        by_age = sorted(walk.search.archive, key=lambda elite: elite.born)
        expected = (["explore"] * GENERATIONS + ["exploit"] * GENERATIONS) * 4
        assert [elite.origin for elite in by_age] == ["initial", *expected]
        for elite, policy in zip(by_age, walk.offspring, strict=True):
            np.testing.assert_array_equal(elite.policy, policy)
        assert int(walk.search.metrics["evaluations"]) == 1 + 16 * (2 * PAIRS + 1)
    assert from_all
    assert from_recent


class FailingWalk(Walk):
    """Some copies fail, and what they report would be the best of all, were it believed."""

    def results_of_copies(self):
        fitness, descriptors, _ = super().results_of_copies()
        fitness[self.generation % 3] = [NAN, INF][self.generation % 2]
        descriptors[self.generation % 3] = 1.0, 1.0
        valid = np.ones(2 * PAIRS, bool)
        valid[3], fitness[3] = False, 1000.0
        if self.generation % 4 == 1:
            descriptors[4, 0], fitness[4] = NAN, 1000.0
        return fitness, descriptors, valid


def test_failed_copies_rank_last_whatever_they_report():
    walk = FailingWalk(0)
    for _ in range(4):
        walk.step()


def test_failed_copies_are_counted_however_they_are_reported():
    walk = FailingWalk(0)
    for _ in range(4):
        walk.step()
    # Per generation: one NaN or infinite fitness, one marked as invalid; in the second also one
    # descriptor that is NaN.
    assert int(walk.search.metrics["rejected"]) == 4 * 2 + 1


def test_a_failed_offspring_is_counted_and_not_archived():
    walk = Walk(1)
    walk.step()
    before = len(walk.search.archive)
    walk.search.ask()
    walk.search.tell(*walk.results_of_copies())
    walk.search.ask()
    walk.search.tell([NAN], [[0.0, 0.0]])
    assert len(walk.search.archive) == before
    assert int(walk.search.metrics["rejected"]) == 1
    assert int(walk.search.state.memory.entered) == before  # nor is it a neighbour of anything


def test_on_a_stochastic_task_a_policy_is_the_mean_of_its_evaluations():
    search = elites.ask_tell("noisy_point_omni", strategy("noisy_point_omni"))
    asked = search.ask().policies
    np.testing.assert_array_equal(asked, np.tile(asked[:1], (3, 1)))
    search.tell([1.0, 2.0, 6.0], [(0.1, 0.0), (0.2, 0.3), (0.3, 0.0)])
    (elite,) = search.archive
    assert elite.fitness == 3.0
    np.testing.assert_allclose(elite.descriptor, [0.2, 0.1], atol=1e-6)
    assert int(search.state.evaluations) == 3

    rejected = elites.ask_tell("noisy_point_omni", strategy("noisy_point_omni"))
    rejected.ask()
    rejected.tell([1.0, 2.0, NAN], np.zeros((3, 2)))  # by one failure
    assert len(rejected.archive) == 0
