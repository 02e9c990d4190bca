"""What touches the disk: a run is a directory that can be resumed, inspected and compared.

Without JAX, so that help and refusals come at once:

- `config`: what a run is asked to do
- `directory`: the directory itself: lock, atomic files, report of the environment
- `session`: a process's turn at a run: start, resume
- `checkpoint`, `snapshots`: everything a run is, in files no fault corrupts unnoticed; its archive
  over time
- `logs`, `progress`, `words`: metrics as CSV and TensorBoard events; what the terminal shows
- `figures`, `voronoi`, `info`, `sharing`: what is drawn, said and packed of a run

With it:

- `job`: a configuration made real, on a device that has room for it
- `trainer`, `signals`: the loop: compile, iterate, log, save, stop
- `saved`, `evaluation`, `export`: a run read back, evaluated again, its policies for elsewhere
"""
