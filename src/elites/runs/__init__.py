"""What touches the disk: a run is a directory that can be resumed, inspected and compared.

config.py      what a run is asked to do, and the presets
directory.py   the directory itself: lock, atomic files, report of the environment
checkpoint.py  everything a run is, in files that a fault cannot corrupt unnoticed
logs.py        metrics as CSV and TensorBoard events
progress.py    what the terminal shows
trainer.py     the loop: compile, iterate, log, save, stop, resume
saved.py       a run read back for its results: evaluate, plot, export, share
"""
