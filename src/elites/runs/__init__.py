"""Runs on disk. A run is a directory that can be resumed, inspected and compared.

These modules load without JAX, so that help and error messages appear at once:

- `config`: configuration of a run
- `directory`, `lock`, `placing`: the run directory and its files; its lock; create it as a whole
- `environment`: versions, device and source of each session
- `session`, `outcome`, `signals`: start and resume a run in this process; handle signals
- `checkpoint`, `snapshots`: complete training states with checksums; the archive over time
- `logs`, `gaps`: metrics as CSV and TensorBoard events; iterations that the tables lack
- `figures`, `drawing`, `voronoi`, `info`, `sharing`: figures, a summary and a zip file of a run
- `evaluation`: tables of a re-evaluation (computing one loads JAX)
- `formats`, `packages`: file formats of exported policies; optional packages

These modules load JAX:

- `job`: the algorithm of a configuration, on a device with enough memory
- `trainer`, `recording`: the training loop: compile, iterate, log, save, stop
- `distilling`: distil the archive of a run into one policy
- `saved`, `export`: load a run; export its policies
- `saving`: write a run that was trained in Python as a run directory
- `fingerprints`, `unchanged`: detect that the code of the task or the algorithm changed
"""
