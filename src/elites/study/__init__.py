"""Studies: many runs by one plan, statistics over their seeds, and a report.

- `plan`: tasks, algorithms, seeds and budget of a study, from a file or by name
- `study`: the directory of a study and its index of runs
- `engines`, `on_ray`, `worker`: processes or a Ray cluster that compute runs
- `scheduler`, `table`: run the unfinished runs; show their progress on the terminal
- `collect`, `imported`: results of all runs, and of other programs, as arrays
- `statistics`: tests, corrections, effect sizes, intervals
- `figures`, `report`: figures and the report page
"""
