"""Exchange archives with pandas, pyribs and QDax.

    record.py    ArchiveData: the archive of one seed as NumPy arrays, for other programs
    tables.py    tables of archives and metrics, as pandas data frames or CSV files
    pyribs.py    archives of pyribs, and their CSV files
    qdax.py      repertoires of QDax, their .npy files, and the order of a network's parameters
    reading.py   read an archive of pyribs or QDax, to start a run from it
    writing.py   write an archive in one of the formats

Files need no other package. The packages pandas, ribs and qdax are imported when they are first
used, by the functions that return their objects.
"""
