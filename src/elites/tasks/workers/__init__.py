"""Run episodes of Gymnasium environments in worker processes.

    pool.py          the parent: starts workers, hands out rows, repeats those of workers that died
    connection.py    one worker process, as the parent sees it
    worker.py        the main function of a worker process
    episode.py       one episode of one policy, in NumPy
    environment.py   make an environment, check it, and map actions to its box
    descriptors.py   behaviour descriptors of an environment's states
    robots.py        the MuJoCo robot of an environment, for drawing
    block.py         the memory that a worker shares with its parent

A worker imports NumPy and Gymnasium, but never JAX. A row is one episode, and each worker has at
most one row at a time. Orders and answers are lines of JSON through a socket; the parameters of a
policy and the recorded steps are in the shared memory.
"""
