"""Studies: many runs from one plan, statistics over their seeds, and a report.

- `plan`: tasks, algorithms, seeds and budget of a study, from a file or by name
- `study`: the directory of a study and its index of runs
- `devices`, `loads`, `seconds`, `measuring`: this machine, and how long its iterations take
- `packing`, `expectation`, `preparing`: which runs share a GPU, and the hours of a study
- `running`, `mps`: start a study; the service by which its runs share a GPU
- `engines`, `on_ray`, `ray_cluster`, `worker`: run workers as local processes or on a Ray cluster
- `scheduler`, `table`: compute the unfinished runs; show their progress on the terminal
- `groups`, `collect`: results of all runs as arrays, joined from the parts of a plan
- `recorded`, `imported`: recorded tables of runs; results of other programs
- `comparison`: the point at which a report compares the algorithms of a task
- `statistics`: significance tests, corrections, effect sizes, confidence intervals
- `figures`, `significance`, `markup`, `report`: figures, tests and the report page
"""
