"""Many runs: a plan, the processes that work it off, statistics over seeds, a report.

- `plan`: which tasks, algorithms and seeds, with which budget; from a file or by name
- `study`: the directory of a study and its index; what is done, what is missing
- `engines`, `worker`: where runs are computed, and the process that computes one
- `scheduler`, `table`: work off what is missing; what the terminal shows meanwhile
- `collect`: the results of all runs, and of other programs, as arrays
- `statistics`: tests, corrections, effect sizes, intervals
- `figures`, `report`: what is drawn, and the page
"""
